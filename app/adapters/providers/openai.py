"""Ask any server that speaks OpenAI's chat completions, always as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from app.adapters.chat_completions.answer import AnswerReader
from app.adapters.chat_completions.profile import Profile, profile_of, url_of
from app.adapters.chat_completions.request import body_of, headers_of
from app.adapters.http_client import ModelClient
from app.adapters.model_exchange import Destination, exchange, secrets_among
from app.core.chunks import Chunk
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.json_text import NotJson
from app.core.operate.project_schema import fit_schema
from app.ports.provider import Capabilities, ModelEndpoint, Opening

MOST_KNOWN: Final = 256
"""Endpoints whose particulars are kept; each registration makes a new one, and so does time."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Where and how an endpoint is asked."""

    endpoint: ModelEndpoint
    profile: Profile
    to: Destination

    @classmethod
    def of(cls, endpoint: ModelEndpoint) -> Self:
        """Raises `Invalid`."""
        profile = profile_of(endpoint)
        credentials = [endpoint.api_key or "", *profile.headers.values()]
        to = Destination(
            url_of(endpoint), headers_of(endpoint, profile), secrets_among(credentials), endpoint.trusted
        )
        return cls(endpoint, profile, to)


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
        answer = exchange(
            self._client,
            target.to,
            content,
            lambda type: AnswerReader(target.profile, type),
            self._now,
            most_bytes=target.profile.max_answer_bytes,
        )
        async with answer as batches:
            yield batches

    def _target(self, endpoint: ModelEndpoint) -> _Target:
        """What follows from the endpoint alone, kept for its next request. Raises `Invalid`."""
        known = self._known.get(id(endpoint))
        if known is not None and known.endpoint is endpoint:
            return known
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        made = self._known[id(endpoint)] = _Target.of(endpoint)
        return made


PROVIDER = OpenAIProvider
