"""A model server on loopback that answers by script and notes what its clients do.

    async with ModelServer() as server:
        server.scripts["m"] = [Attempt(chunks=[b"data: …\\n\\n", 0.5, b"data: [DONE]\\n\\n"])]
        … POST any path of server.base_url with {"model": "m"} …

The script is chosen by the model that the request names, in its body or its path: the n-th request for a
model gets its n-th attempt, the last one repeats.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import unquote

Framing = Literal["eof", "chunked", "length"]
Then = Literal["close", "reset", "hang", "keep"]


@dataclass(frozen=True)
class Attempt:
    """One answer."""

    chunks: Sequence[bytes | float] = ()
    """Bytes are written, a number is a pause in seconds."""
    status: int = 200
    content_type: str | None = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    open_wait_s: float = 0.0
    """Silence before the status line."""
    then: Then = "close"
    """After the last chunk: end the body and close; reset the connection; say nothing more and keep it open;
    or end the body and take the next request."""
    framing: Framing = "eof"
    """How the body's end is told: by the connection's end, by chunks, or by a length."""
    cut: bool = False
    """Close without the end that the framing promises."""
    head: bytes | None = None
    """What is sent in place of status line and headers, empty for nothing at all."""
    write_size: int | None = None
    """Write at most so many bytes at once."""


@dataclass(frozen=True)
class Request:
    """What a client asked."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    at: float
    """Seconds of `time.monotonic()`."""

    @property
    def model(self) -> str:
        """The `model` of the body, else the one in the path as Gemini or Bedrock have it, else ""."""
        if isinstance(self.body, dict) and "model" in self.body:
            return str(self.body["model"])
        if "/model/" in self.path:
            return unquote(self.path.partition("/model/")[2].partition("/")[0])
        return self.path.partition("/models/")[2].partition(":")[0]


class ModelServer:
    """See the module's words."""

    def __init__(
        self,
        scripts: Mapping[str, Sequence[Attempt]] | None = None,
        *,
        choose: Callable[[Request], Attempt] | None = None,
    ) -> None:
        """`choose` takes the place of scripts: it answers by what is asked."""
        self.scripts: dict[str, Sequence[Attempt]] = dict(scripts or {})
        self._choose = choose or self._scripted
        self.requests: list[Request] = []
        self.connections = 0
        """How many connections were accepted."""
        self.left_early: list[float] = []
        """When clients closed their connection before the answer's end, in seconds of `time.monotonic()`."""
        self.answered = 0
        """How many answers were written to their end."""
        self._asked: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def base_url(self) -> str:
        """What a registered model has as its `base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._serve(_Wire(reader), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the server is being stopped
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, wire: _Wire, writer: asyncio.StreamWriter) -> None:
        while (request := await wire.request()) is not None:
            self.requests.append(request)
            attempt = self._choose(request)
            if not await self._answer(attempt, wire, writer) or attempt.then != "keep":
                return

    def _scripted(self, request: Request) -> Attempt:
        script = self.scripts.get(request.model) or [Attempt(status=404, content_type=None, chunks=[])]
        attempt = script[min(self._asked[request.model], len(script) - 1)]
        self._asked[request.model] += 1
        return attempt

    async def _answer(self, attempt: Attempt, wire: _Wire, writer: asyncio.StreamWriter) -> bool:
        """Whether the client stayed for all of it."""
        writing = asyncio.ensure_future(_write(attempt, writer))
        leaving = asyncio.ensure_future(wire.wait_for_more())
        try:
            await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done() and leaving.result():
                self.left_early.append(time.monotonic())
                return False
            await writing
            self.answered += 1
            return True
        except ConnectionError:
            self.left_early.append(time.monotonic())
            return False
        finally:
            for task in (writing, leaving):
                task.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)


class _Wire:
    """What comes in on one connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._early = b""

    async def wait_for_more(self) -> bool:
        """Wait until the client sends something or leaves; whether it left."""
        try:
            came = await self._reader.read(1)
        except ConnectionError:
            return True
        self._early += came
        return not came

    async def request(self) -> Request | None:
        """The next request, None when the client has left instead."""
        try:
            head = self._early + await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        self._early = b""
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (ln.partition(":") for ln in lines)
        }
        raw = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Request(method, path, headers, json.loads(raw) if raw else None, time.monotonic())


async def _write(attempt: Attempt, writer: asyncio.StreamWriter) -> None:
    if attempt.open_wait_s:
        await asyncio.sleep(attempt.open_wait_s)
    writer.write(_head(attempt) if attempt.head is None else attempt.head)
    for chunk in attempt.chunks:
        if isinstance(chunk, bytes):
            await _write_body(chunk, attempt, writer)
        else:
            await asyncio.sleep(chunk)
    await writer.drain()
    if attempt.then == "hang":
        await asyncio.get_running_loop().create_future()
    elif attempt.then == "reset":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    elif attempt.framing == "chunked" and not attempt.cut:
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _write_body(chunk: bytes, attempt: Attempt, writer: asyncio.StreamWriter) -> None:
    size = attempt.write_size or len(chunk) or 1
    for start in range(0, len(chunk), size):
        piece = chunk[start : start + size]
        if attempt.framing == "chunked":
            piece = b"%x\r\n%s\r\n" % (len(piece), piece)
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)


def _head(attempt: Attempt) -> bytes:
    headers = dict(attempt.headers)
    if attempt.content_type is not None:
        headers["Content-Type"] = attempt.content_type
    if attempt.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif attempt.framing == "length":
        length = sum(len(chunk) for chunk in attempt.chunks if isinstance(chunk, bytes))
        headers["Content-Length"] = str(length + 1000 if attempt.cut else length)
    if attempt.then != "keep":
        headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {attempt.status} Scripted\r\n{lines}\r\n".encode("latin-1")
