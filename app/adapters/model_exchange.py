"""One request to a model server and its answer, whatever wire it is on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

import httpx

from app.adapters.answer_size import AnswerSize
from app.adapters.http_client import ModelClient, let_end, read
from app.adapters.model_faults import connection_fault, status_fault, without_secrets
from app.core.chunks import Chunk
from app.core.faults import Fault, ProviderError

ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error answer's body is read."""

ERROR_BODY_S: Final = 2.0
"""How long it is waited for; shorter than a usual limit on the first token, or the status is never told."""

SECRET_CHARS: Final = 5
"""What is shorter is no secret, but a dummy for a server that wants some key."""


class Reader(Protocol):
    """Turns the bytes of one answer into chunks."""

    fault: Fault | None
    """What ended the answer; it follows on the chunks that were returned."""
    over: bool
    """Whether nothing more is to be read."""
    complete: bool
    """Whether the end mark came; what follows in the body is of no interest."""
    is_answer: bool
    """Whether it is certain that this is an answer in a form that we take."""

    def feed(self, piece: bytes) -> list[Chunk]:
        """What the piece says; a `KeepAlive` when that is nothing."""

    def finish(self) -> list[Chunk]:
        """What is left when the body has ended."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request goes."""

    url: httpx.URL
    headers: Mapping[str, str]
    secrets: Sequence[str]
    """What must not stand in a fault."""
    trusted: bool = False
    """Whether the address is the operator's own choice."""


def secrets_among(credentials: Sequence[str]) -> list[str]:
    """Those that are long enough to be one, each also without the word of its scheme."""
    parts = {part for value in credentials for part in (value, value.rpartition(" ")[2])}
    return sorted(part for part in parts if len(part) >= SECRET_CHARS)


@asynccontextmanager
async def exchange(
    client: ModelClient,
    to: Destination,
    content: bytes,
    reader_of: Callable[[str], Reader],
    now: Callable[[], datetime],
    *,
    most_bytes: int,
) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
    """Ask, and give the answer as it comes; see `ports.provider.Provider.open`.

    `reader_of` makes a reader for a content type; `now` serves `Retry-After` dates alone;
    `most_bytes` is how long the answer may be.
    """
    with _faults(to.secrets):
        response = await client.open(to.url, to.headers, content, trusted=to.trusted)
    try:
        with _faults(to.secrets):
            if not response.is_success:
                raise ProviderError(await _refusal(response, now))
            reader = reader_of(response.headers.get("content-type", ""))
            size = AnswerSize(most_bytes)
            first = await _first(response, reader, size)
        async with aclosing(_answer(response, reader, size, first, to.secrets)) as answer:
            yield answer
        if reader.complete:
            let_end(response)
    finally:
        await response.aclose()


async def _refusal(response: httpx.Response, now: Callable[[], datetime]) -> Fault:
    """What an answer with an error status says."""
    body = b""
    # The status alone says enough where the rest does not come.
    with suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout(ERROR_BODY_S):
            while len(body) < ERROR_BODY_BYTES and (piece := await read(response)):
                body += piece
    return status_fault(response.status_code, response.headers, body[:ERROR_BODY_BYTES], now())


async def _first(response: httpx.Response, reader: Reader, size: AnswerSize) -> list[Chunk]:
    """Read until it is certain that this is an answer; raise when it is none."""
    chunks: list[Chunk] = []
    while not reader.is_answer and not reader.over:
        chunks = await _next(response, reader, size)
    if reader.fault is not None and not reader.is_answer:
        raise ProviderError(reader.fault)
    return chunks


async def _answer(
    response: httpx.Response, reader: Reader, size: AnswerSize, first: list[Chunk], secrets: Sequence[str]
) -> AsyncGenerator[Sequence[Chunk], None]:
    with _faults(secrets):
        if first:
            yield first
        while not reader.over:
            if chunks := await _next(response, reader, size):
                yield chunks
        if reader.fault is not None:
            raise ProviderError(reader.fault)


async def _next(response: httpx.Response, reader: Reader, size: AnswerSize) -> list[Chunk]:
    piece = await read(response)
    return reader.feed(size.counted(piece)) if piece else reader.finish()


@contextmanager
def _faults(secrets: Sequence[str]) -> Iterator[None]:
    """Let nothing but `ProviderError` out, and no secret with it: the errors below may quote the URL."""
    try:
        yield
    except httpx.TransportError as error:
        raise ProviderError(without_secrets(connection_fault(error), secrets)) from None
    except ProviderError as error:
        raise ProviderError(without_secrets(error.fault, secrets)) from None
