"""A server on loopback that sends every header back that it was sent, as careless servers do."""

from __future__ import annotations

import base64
import json
from typing import Any, Self
from urllib.parse import quote

from aiohttp import web


class EchoServer:
    """The path chooses how: see `_answer`."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str], str]] = []
        """Path, headers by their names in lower case, and body of each request."""
        self._runner: web.ServerRunner | None = None
        self._port = 0

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self._port}{path}"

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append((request.path, headers, (await request.read()).decode()))
        said = _said(headers)
        begins = " ".join(f"{value.rpartition(' ')[2][:20]}..." for value in headers.values())
        error = {"error": {"message": f"{said} {begins}", "type": "invalid_api_key", "param": headers}}
        match request.path.split("/")[1]:
            case "refuse":
                return web.json_response(error, status=401)
            case "cut":  # in the middle of what is quoted
                return web.json_response({"error": {"message": "x" * 1_960 + said}}, status=400)
            case "words":
                return web.Response(text=f"{begins} {said}", status=403)
            case "stream":
                body = f"data: {json.dumps(error)}\n\n"
                return web.Response(text=body, content_type="text/event-stream")
            case "nonsense":
                return web.Response(text=said, content_type="text/event-stream")
            case "output" | "take":
                return web.json_response({"you": headers, "said": said})
            case _:
                raise AssertionError(request.path)


def _said(headers: dict[str, str]) -> str:
    """The headers in all the ways in which somebody might write them down."""
    forms: list[Any] = []
    for name, value in headers.items():
        secret = value.rpartition(" ")[2]
        forms += (
            f"{name}: {value}",
            quote(secret, safe=""),
            json.dumps(secret),
            base64.b64encode(value.encode()).decode(),
            base64.urlsafe_b64encode(f"user:{secret}".encode()).decode(),
        )
    return " ".join(forms)
