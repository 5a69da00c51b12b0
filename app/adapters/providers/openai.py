"""Ask any server that speaks OpenAI's chat completions, always as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

import httpx

from app.adapters.chat_completions.answer import AnswerReader
from app.adapters.chat_completions.profile import Profile, profile_of, url_of
from app.adapters.chat_completions.request import body_of, headers_of
from app.adapters.http_client import ModelClient, let_end, read
from app.adapters.model_faults import connection_fault, status_fault, without_secrets
from app.core.chunks import Chunk
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.json_text import NotJson
from app.core.operate.project_schema import fit_schema
from app.ports.provider import Capabilities, ModelEndpoint, Opening

ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error answer's body is read."""

ERROR_BODY_S: Final = 2.0
"""How long it is waited for; shorter than a usual limit on the first token, or the status is never told."""

SECRET_CHARS: Final = 5
"""What is shorter is no secret, but a dummy for a server that wants some key."""


MOST_KNOWN: Final = 256
"""Endpoints whose particulars are kept; each registration makes a new one, and so does time."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Where and how an endpoint is asked."""

    endpoint: ModelEndpoint
    profile: Profile
    url: httpx.URL
    headers: Mapping[str, str]
    secrets: Sequence[str]
    """What must not stand in a fault."""

    @classmethod
    def of(cls, endpoint: ModelEndpoint) -> Self:
        """Raises `Invalid`."""
        profile = profile_of(endpoint)
        credentials = [endpoint.api_key or "", *profile.headers.values()]
        secrets = [value for value in credentials if len(value) >= SECRET_CHARS]
        return cls(endpoint, profile, url_of(endpoint), headers_of(endpoint, profile), secrets)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class OpenAIProvider:
    """The chat completions wire; `chat_completions.profile.Profile` says how an endpoint may differ."""

    name = "openai"
    adapter_id = "openai"

    def __init__(self, client: ModelClient, now: Callable[[], datetime] = _utc_now) -> None:
        """`client` is one of `http_client.model_client`; `now` serves `Retry-After` dates alone."""
        self._client = client
        self._now = now
        self._known: dict[int, _Target] = {}

    def check(self, endpoint: ModelEndpoint) -> None:
        """Raise `Invalid` with pointers when the endpoint's options or base URL make no sense."""
        profile_of(endpoint)
        url_of(endpoint)

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """Both, unless the options say otherwise."""
        profile = self._target(endpoint).profile
        return Capabilities(
            tools=profile.native_tools,
            response_schema=profile.native_schema,
            project_schema=fit_schema if profile.schema_profile == "llama.cpp" else None,
        )

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
        """Ask, and give the answer as it comes; see `ports.provider.Provider.open`."""
        try:
            target = self._target(opening.endpoint)
            content = body_of(opening, target.profile)
        except (Invalid, NotJson) as error:
            fault = Fault(FaultKind.INTERNAL, f"the request cannot be made: {error}", type="bad_request")
            raise ProviderError(fault) from None
        secrets = target.secrets
        with _faults(secrets):
            response = await self._client.open(target.url, target.headers, content)
        try:
            with _faults(secrets):
                if not response.is_success:
                    raise ProviderError(await self._refusal(response))
                reader = AnswerReader(target.profile, response.headers.get("content-type", ""))
                first = await _first(response, reader)
            async with aclosing(_answer(response, reader, first, secrets)) as answer:
                yield answer
            if reader.complete:
                let_end(response)
        finally:
            await response.aclose()

    def _target(self, endpoint: ModelEndpoint) -> _Target:
        """What follows from the endpoint alone, kept for its next request. Raises `Invalid`."""
        known = self._known.get(id(endpoint))
        if known is not None and known.endpoint is endpoint:
            return known
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        made = self._known[id(endpoint)] = _Target.of(endpoint)
        return made

    async def _refusal(self, response: httpx.Response) -> Fault:
        """What an answer with an error status says."""
        body = b""
        # The status alone says enough where the rest does not come.
        with suppress(TimeoutError, httpx.TransportError):
            async with asyncio.timeout(ERROR_BODY_S):
                while len(body) < ERROR_BODY_BYTES and (piece := await read(response)):
                    body += piece
        return status_fault(response.status_code, response.headers, body[:ERROR_BODY_BYTES], self._now())


async def _first(response: httpx.Response, reader: AnswerReader) -> list[Chunk]:
    """Read until it is certain that this is an answer; raise when it is none."""
    chunks: list[Chunk] = []
    while not reader.is_answer and not reader.over:
        chunks = await _next(response, reader)
    if reader.fault is not None and not reader.is_answer:
        raise ProviderError(reader.fault)
    return chunks


async def _answer(
    response: httpx.Response, reader: AnswerReader, first: list[Chunk], secrets: Sequence[str]
) -> AsyncGenerator[Sequence[Chunk], None]:
    with _faults(secrets):
        if first:
            yield first
        while not reader.over:
            if chunks := await _next(response, reader):
                yield chunks
        if reader.fault is not None:
            raise ProviderError(reader.fault)


async def _next(response: httpx.Response, reader: AnswerReader) -> list[Chunk]:
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


PROVIDER = OpenAIProvider
