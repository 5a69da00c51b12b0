"""Ask models on Amazon Bedrock, always as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from app.adapters.anthropic_messages.schema import fit_schema
from app.adapters.bedrock_converse.answer import AnswerReader
from app.adapters.bedrock_converse.profile import headers_of, profile_of, secrets_in, url_of
from app.adapters.bedrock_converse.request import body_of
from app.adapters.http_client import ModelClient
from app.adapters.model_exchange import Destination, exchange, secrets_among
from app.core.chunks import Chunk
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.json_text import NotJson
from app.ports.provider import Capabilities, ModelEndpoint, Opening


def _utc_now() -> datetime:
    return datetime.now(UTC)


class BedrockProvider:
    """The wire of ConverseStream; `bedrock_converse.profile.Profile` says how an endpoint is asked."""

    name = "bedrock"
    adapter_id = "bedrock"

    def __init__(self, client: ModelClient, now: Callable[[], datetime] = _utc_now) -> None:
        """`client` is one of `http_client.model_client`; `now` serves signatures and `Retry-After` dates."""
        self._client = client
        self._now = now

    def check(self, endpoint: ModelEndpoint) -> None:
        """Raise `Invalid` with pointers when the endpoint's options or base URL make no sense."""
        url_of(endpoint, profile_of(endpoint))

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """Both, unless the options say otherwise; of a schema, what the API enforces."""
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
            url, content = url_of(endpoint, profile), body_of(opening, profile)
            headers = headers_of(endpoint, profile, url, content, self._now())
            secrets = secrets_among([*secrets_in(endpoint), *profile.headers.values()])
        except (Invalid, NotJson) as error:
            fault = Fault(FaultKind.INTERNAL, f"the request cannot be made: {error}", type="bad_request")
            raise ProviderError(fault) from None
        to = Destination(url, headers, secrets, endpoint.trusted)
        answer = exchange(
            self._client,
            to,
            content,
            lambda type: AnswerReader(profile.max_event_bytes, type),
            self._now,
            most_bytes=profile.max_answer_bytes,
        )
        async with answer as batches:
            yield batches


PROVIDER = BedrockProvider
