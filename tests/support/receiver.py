"""A receiver of webhooks on loopback that answers by script and notes what it was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from standardwebhooks import Webhook


@dataclass(frozen=True)
class Reply:
    """One answer."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    after: asyncio.Event | None = None
    """What the answer waits for."""
    body: bytes = b""


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def id(self) -> str:
        """The post's."""
        return self.headers["webhook-id"]

    @property
    def data(self) -> dict[str, Any]:
        """What it tells."""
        data: dict[str, Any] = json.loads(self.body)["data"]
        return data

    def verify(self, secret: str) -> None:
        """Raises for a signature that was not made with the secret."""
        Webhook(secret).verify(self.body, dict(self.headers))


class Receiver:
    """See the module's words. The n-th request for a path gets its n-th reply; the last one repeats."""

    def __init__(self) -> None:
        self.replies: dict[str, Sequence[Reply]] = {}
        self.received: list[Received] = []
        self.open = self.most_open = 0
        """Requests that wait for their answer now, and at most so far."""
        self._port = 0
        self._runner: web.ServerRunner | None = None

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self._port}{path}"

    def at(self, path: str) -> list[Received]:
        """What was sent to a path."""
        return [request for request in self.received if request.path == path]

    def callbacks(self, path: str) -> list[dict[str, Any]]:
        """The callbacks that were sent to a path, each post once."""
        posts = {request.id: request for request in self.at(path)}
        return [callback for request in posts.values() for callback in request.data["callbacks"]]

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        script = self.replies.get(request.path) or [Reply()]
        reply = script[min(len(self.at(request.path)), len(script) - 1)]
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.path, headers, body))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            if reply.after is not None:
                await reply.after.wait()
        finally:
            self.open -= 1
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)
