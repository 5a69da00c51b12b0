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
from app.core.chunks import Chunk, FinishReason
from app.core.faults import Fault, ProviderError
from app.core.masking import Mask

ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error answer's body is read."""

ERROR_BODY_S: Final = 2.0
"""How long it is waited for; shorter than a usual limit on the first token, or the status is never told."""

REASON_CHARS: Final = 1_000
"""How much is kept of a word for the reason to stop that nobody knows."""

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
            hearing = _Hearing(response, reader, AnswerSize(most_bytes), to.secrets)
            first = await hearing.first()
        async with aclosing(hearing.all(first)) as answer:
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


@dataclass(frozen=True, slots=True)
class _Hearing:
    """An answer while it is read."""

    response: httpx.Response
    reader: Reader
    size: AnswerSize
    secrets: Sequence[str]

    async def first(self) -> list[Chunk]:
        """Read until it is certain that this is an answer; raise when it is none."""
        reader, chunks = self.reader, list[Chunk]()
        while not reader.is_answer and not reader.over:
            chunks = await self._next()
        if reader.fault is not None and not reader.is_answer:
            raise ProviderError(reader.fault)
        return chunks

    async def all(self, first: list[Chunk]) -> AsyncGenerator[Sequence[Chunk], None]:
        """What there was first, and the rest as it comes."""
        with _faults(self.secrets):
            if first:
                yield first
            while not self.reader.over:
                if chunks := await self._next():
                    yield chunks
            if self.reader.fault is not None:
                raise ProviderError(self.reader.fault)

    async def _next(self) -> list[Chunk]:
        piece = await read(self.response)
        chunks = self.reader.feed(self.size.counted(piece)) if piece else self.reader.finish()
        for chunk in chunks:
            # Told beside the answer, and logged; a word that the wire knows is no secret.
            if type(chunk) is FinishReason and chunk.reason in (None, "content_filter"):
                chunk.raw = Mask(self.secrets).all(chunk.raw[:REASON_CHARS])
        return chunks


@contextmanager
def _faults(secrets: Sequence[str]) -> Iterator[None]:
    """Let nothing but `ProviderError` out, and no secret with it: the errors below may quote the URL."""
    try:
        yield
    except httpx.TransportError as error:
        raise ProviderError(without_secrets(connection_fault(error), secrets)) from None
    except ProviderError as error:
        raise ProviderError(without_secrets(error.fault, secrets)) from None
