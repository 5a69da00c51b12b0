"""Ask the Gemini API, or a server that speaks its wire, always as an event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from app.adapters.gemini_content.answer import AnswerReader
from app.adapters.gemini_content.faults import in_full
from app.adapters.gemini_content.profile import headers_of, profile_of, url_of
from app.adapters.gemini_content.request import body_of
from app.adapters.gemini_content.schema import project
from app.adapters.http_client import ModelClient
from app.adapters.model_exchange import Destination, exchange, secrets_among
from app.core.chunks import Chunk
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.json_text import NotJson
from app.ports.provider import Capabilities, ModelEndpoint, Opening


def _utc_now() -> datetime:
    return datetime.now(UTC)


class GeminiProvider:
    """The wire of `streamGenerateContent`; `gemini_content.profile.Profile` says how an endpoint is asked."""

    name = "gemini"
    adapter_id = "gemini"

    def __init__(self, client: ModelClient, now: Callable[[], datetime] = _utc_now) -> None:
        """`client` is one of `http_client.model_client`; `now` serves `Retry-After` dates alone."""
        self._client = client
        self._now = now

    def check(self, endpoint: ModelEndpoint) -> None:
        """Raise `Invalid` with pointers when the endpoint's options or base URL make no sense."""
        profile_of(endpoint)
        url_of(endpoint)

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """Both, unless the options say otherwise; a schema is put into the API's dialect."""
        profile = profile_of(endpoint)
        return Capabilities(
            tools=profile.native_tools,
            response_schema=profile.native_schema,
            project_schema=None if profile.json_schema else project,
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
            lambda type: AnswerReader(profile.max_event_bytes, type),
            self._now,
            most_bytes=profile.max_answer_bytes,
        )
        async with AsyncExitStack() as held:
            try:
                batches = await held.enter_async_context(answer)
            except ProviderError as error:
                raise ProviderError(in_full(error.fault)) from None
            yield batches


PROVIDER = GeminiProvider
