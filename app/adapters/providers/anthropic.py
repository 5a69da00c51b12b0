"""Ask servers that speak Anthropic's Messages, always as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from app.adapters.anthropic_messages.answer import AnswerReader
from app.adapters.anthropic_messages.profile import profile_of, url_of
from app.adapters.anthropic_messages.request import body_of, headers_of
from app.adapters.anthropic_messages.schema import fit_schema
from app.adapters.http_client import ModelClient
from app.adapters.model_exchange import Destination, exchange, secrets_among
from app.core.chunks import Chunk
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.json_text import NotJson
from app.ports.provider import Capabilities, ModelEndpoint, Opening


def _utc_now() -> datetime:
    return datetime.now(UTC)


class AnthropicProvider:
    """The Messages wire; `anthropic_messages.profile.MessagesProfile` says how an endpoint may differ."""

    name = "anthropic"
    adapter_id = "anthropic"

    def __init__(self, client: ModelClient, now: Callable[[], datetime] = _utc_now) -> None:
        """`client` is one of `http_client.model_client`; `now` serves `Retry-After` dates alone."""
        self._client = client
        self._now = now

    def check(self, endpoint: ModelEndpoint) -> None:
        """Raise `Invalid` with pointers when the endpoint's options or base URL make no sense."""
        profile_of(endpoint)
        url_of(endpoint)

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """Both, unless the options say otherwise; of a schema, what the wire enforces."""
        profile = profile_of(endpoint)
        return Capabilities(
            tools=profile.native_tools, response_schema=profile.native_schema, project_schema=fit_schema
        )

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
        """Ask, and give the answer as it comes; see `ports.provider.Provider.open`."""
        endpoint = opening.endpoint
        try:
            profile = profile_of(endpoint)
            secrets = secrets_among([endpoint.api_key or "", *profile.headers.values()])
            to = Destination(url_of(endpoint), headers_of(endpoint, profile), secrets, endpoint.trusted)
            content = body_of(opening, profile)
        except (Invalid, NotJson) as error:
            fault = Fault(FaultKind.INTERNAL, f"the request cannot be made: {error}", type="bad_request")
            raise ProviderError(fault) from None
        answer = exchange(
            self._client,
            to,
            content,
            lambda type: AnswerReader(profile, type),
            self._now,
            most_bytes=profile.max_answer_bytes,
        )
        async with answer as batches:
            yield batches


PROVIDER = AnthropicProvider
