"""A load client that costs little: HTTP/1.1 by hand, one kept connection for each simulated client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import httptools
import orjson

Address = tuple[str, int]
"""Host and port."""


class LoadFailed(Exception):
    """An answer was not what the load asked for, so its figures would mean nothing."""


@dataclass(slots=True)
class Answer:
    """One answer and its times, in seconds of `time.perf_counter`."""

    began: float
    first: float = 0.0
    """When the mark was seen for the first time; 0 if it never was."""
    ended: float = 0.0
    status: int = 0
    body: bytes = b""

    @property
    def whole_ms(self) -> float:
        """From the request to the end of the answer."""
        return (self.ended - self.began) * 1000

    @property
    def first_ms(self) -> float:
        """From the request to the first mark."""
        return (self.first - self.began) * 1000

    def json(self) -> Any:
        """The body's value. Raises LoadFailed unless the answer was a success."""
        if not 200 <= self.status < 300:
            raise LoadFailed(f"status {self.status}: {self.body[:500].decode('utf-8', 'replace')}")
        return orjson.loads(self.body)


def request(
    address: Address,
    method: str,
    path: str,
    body: Any = None,
    *,
    accept: str = "*/*",
    prefer: str = "",
    key: str = "",
) -> bytes:
    """The bytes of a request with a JSON body."""
    content = b"" if body is None else orjson.dumps(body)
    said = {"Prefer": prefer, "Idempotency-Key": key}
    more = "".join(f"{name}: {value}\r\n" for name, value in said.items() if value)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nAccept: {accept}\r\n"
        f"{more}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class Connection(asyncio.Protocol):
    """One connection; asks one thing at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._mark = b""
        self._pieces: list[bytes] = []
        self._answer: Answer
        self._whole: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """Connect."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, *address)
        return connection

    async def ask(self, data: bytes, mark: bytes = b"") -> Answer:
        """Send a request and read the whole answer; the first piece of body that holds `mark` is timed."""
        self._mark = mark
        self._whole = asyncio.get_running_loop().create_future()
        self._answer = Answer(time.perf_counter())
        self._transport.write(data)
        await self._whole
        return self._answer

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._whole is not None and not self._whole.done():
            self._whole.set_exception(LoadFailed(f"the answer was cut off: {exc!r}"))

    def on_message_begin(self) -> None:
        # A new parser for each answer costs more than to be told where one begins.
        self._pieces = []

    def on_headers_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        # No server that is measured cuts a mark in two at its first occurrence: it is within one write.
        if self._mark and not self._answer.first and self._mark in piece:
            self._answer.first = time.perf_counter()

    def on_message_complete(self) -> None:
        answer = self._answer
        answer.ended = time.perf_counter()
        answer.body = b"".join(self._pieces)
        if self._whole is not None and not self._whole.done():
            self._whole.set_result(None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load gave."""

    answers: list[Answer]
    elapsed_s: float


async def load(address: Address, requests: Iterable[bytes], *, clients: int, mark: bytes = b"") -> Outcome:
    """Ask everything, `clients` at a time, each next request as soon as an answer has ended."""
    connections = [await Connection.open(address) for _ in range(clients)]
    waiting = iter(requests)
    answers: list[Answer] = []
    began = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(_client(connection, waiting, mark, answers))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        for connection in connections:
            connection.close()
    return Outcome(answers, time.perf_counter() - began)


async def _client(connection: Connection, waiting: Iterator[bytes], mark: bytes, out: list[Answer]) -> None:
    out.extend([await connection.ask(data, mark) for data in waiting])
