"""How soon the model server sees its connection closed when a run is cancelled or a limit strikes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Final, cast

from benchmarks.client import Connection, LoadFailed, request
from benchmarks.fake_model import token_event
from benchmarks.figures import Figures, Scale, p50
from benchmarks.targets import Branchline

LIMIT_MS: Final = 150
"""The limit between tokens in the runs that are left to it."""
WITHIN_S: Final = 10.0

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass(slots=True)
class _Talk(asyncio.Protocol):
    """Says one token to whoever asks, and then nothing more."""

    said: asyncio.Future[float] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Seconds of `time.perf_counter` at which the token was sent."""
    closed: asyncio.Future[float] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """When the client closed the connection."""
    transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """The request is not read: whatever it is, this is the answer."""
        if not self.said.done():
            assert self.transport is not None
            self.transport.write(_HEAD + token_event("silent", 0))
            self.said.set_result(time.perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if not self.closed.done():
            self.closed.set_result(time.perf_counter())


async def hangups(service: Branchline, scale: Scale) -> Figures:
    """From the request to cancel, and from the moment a limit strikes, until the connection is closed."""
    talks: asyncio.Queue[_Talk] = asyncio.Queue()

    def accept() -> _Talk:
        talk = _Talk()
        talks.put_nowait(talk)
        return talk

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    connection = await Connection.open(service.address)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        asking = _Asking(service, connection, talks, f"silent-{port}")
        await service.register(asking.model, (host, port))
        cancelled = [await asking.cancelled_s() for _ in range(scale.hangups)]
        timed_out = [await asking.timed_out_s() for _ in range(scale.hangups)]
    finally:
        connection.close()
        server.close()
    return {
        "cancel_to_close_ms": p50(cancelled) * 1000,
        "cancel_to_close_most_ms": max(cancelled) * 1000,
        "limit_to_close_ms": p50(timed_out) * 1000,
        "limit_to_close_most_ms": max(timed_out) * 1000,
    }


@dataclass(frozen=True, slots=True)
class _Asking:
    """Runs that begin to be answered and then hear nothing more."""

    service: Branchline
    connection: Connection
    talks: asyncio.Queue[_Talk]
    model: str

    async def cancelled_s(self) -> float:
        """From the request to cancel to the closed connection."""
        run, talk = await self._begun(None)
        answer = await self.connection.ask(request(self.service.address, "POST", f"/v1/runs/{run}/cancel"))
        answer.json()
        return await _within(talk.closed) - answer.began

    async def timed_out_s(self) -> float:
        """From the moment at which the limit strikes to the closed connection."""
        _, talk = await self._begun({"initial_token_ms": LIMIT_MS, "inter_token_ms": LIMIT_MS})
        return await _within(talk.closed) - (await talk.said + LIMIT_MS / 1000)

    async def _begun(self, limits: Any) -> tuple[str, _Talk]:
        service = self.service
        body = {
            "instruction": "hi",
            "chat_model": self.model,
            "lifecycle": {"retry": None, "timeout": limits},
        }
        path = f"/v1/branches/{service.branch()}/operate"
        asked = request(service.address, "POST", path, body, prefer="respond-async")
        run = (await self.connection.ask(asked)).json()
        talk = await asyncio.wait_for(self.talks.get(), WITHIN_S)
        await _within(talk.said)
        return str(run["id"]), talk


async def _within(moment: asyncio.Future[float]) -> float:
    try:
        return await asyncio.wait_for(asyncio.shield(moment), WITHIN_S)
    except TimeoutError:
        raise LoadFailed(f"the model server saw nothing within {WITHIN_S:g} s") from None
