"""Open a model server's answer and read it piece by piece, whatever wire format it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

import httpx

from app.adapters.http_client import ModelClient, let_end, read
from app.adapters.model_faults import connection_fault, without_secrets
from app.core.chunks import Chunk
from app.core.faults import Fault, ProviderError

ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error answer's body is read."""

ERROR_BODY_S: Final = 2.0
"""How long it is waited for; shorter than a usual limit on the first token, or the status is never told."""

SECRET_CHARS: Final = 5
"""What is shorter is no secret, but a dummy for a server that wants some key."""


class Reader(Protocol):
    """Turns the bytes of one answer into chunks; a fault follows on the chunks that were returned."""

    fault: Fault | None
    over: bool
    """Whether nothing more is to be read."""
    complete: bool
    """Whether the wire said that the answer is whole; what follows in the body is of no interest."""
    is_answer: bool
    """Whether it is certain that this is an answer."""

    def feed(self, piece: bytes) -> list[Chunk]:
        """What a piece of the body says."""

    def finish(self) -> list[Chunk]:
        """What is left when the body has ended; sets `over`."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request and how to read what comes of it."""

    url: httpx.URL
    headers: dict[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    reader: Callable[[httpx.Response], Reader]
    """Makes the reader of an answer with a success status."""
    refusal: Callable[[httpx.Response, bytes], Fault]
    """What an answer with another status means; the bytes are its body, or the beginning of it."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """What must not stand in a fault, unless it is too short to be one."""


@asynccontextmanager
async def answer(client: ModelClient, question: Question) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
    """Ask, and give the answer as it comes; see `ports.provider.Provider.open`."""
    secrets = [secret for secret in question.secrets if len(secret) >= SECRET_CHARS]
    with _faults(secrets):
        response = await client.open(question.url, question.headers, question.content)
    try:
        with _faults(secrets):
            if not response.is_success:
                raise ProviderError(question.refusal(response, await _error_body(response)))
            reader = question.reader(response)
            first = await _first(response, reader)
        async with aclosing(_rest(response, reader, first, secrets)) as batches:
            yield batches
        if reader.complete:
            let_end(response)
    finally:
        await response.aclose()


async def _error_body(response: httpx.Response) -> bytes:
    body = b""
    # The status alone says enough where the rest does not come.
    with suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout(ERROR_BODY_S):
            while len(body) < ERROR_BODY_BYTES and (piece := await read(response)):
                body += piece
    return body[:ERROR_BODY_BYTES]


async def _first(response: httpx.Response, reader: Reader) -> list[Chunk]:
    """Read until it is certain that this is an answer; raise when it is none."""
    chunks: list[Chunk] = []
    while not reader.is_answer and not reader.over:
        chunks = await _next(response, reader)
    if reader.fault is not None and not reader.is_answer:
        raise ProviderError(reader.fault)
    return chunks


async def _rest(
    response: httpx.Response, reader: Reader, first: list[Chunk], secrets: Sequence[str]
) -> AsyncGenerator[Sequence[Chunk], None]:
    with _faults(secrets):
        if first:
            yield first
        while not reader.over:
            if chunks := await _next(response, reader):
                yield chunks
        if reader.fault is not None:
            raise ProviderError(reader.fault)


async def _next(response: httpx.Response, reader: Reader) -> list[Chunk]:
    piece = await read(response)
    return reader.feed(piece) if piece else reader.finish()


@contextmanager
def _faults(secrets: Sequence[str]) -> Iterator[None]:
    """Let nothing but `ProviderError` out, and no secret with it: the errors below may quote the URL."""
    try:
        yield
    except httpx.TransportError as error:
        raise ProviderError(without_secrets(connection_fault(error), secrets)) from None
    except ProviderError as error:
        raise ProviderError(without_secrets(error.fault, secrets)) from None
