"""Ask the Gemini API, or a server that speaks its wire, always as an event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx

from app.adapters.gemini_content.answer import AnswerReader
from app.adapters.gemini_content.faults import in_full
from app.adapters.gemini_content.profile import headers_of, profile_of, url_of
from app.adapters.gemini_content.request import body_of
from app.adapters.gemini_content.schema import project
from app.adapters.http_client import ModelClient
from app.adapters.model_faults import status_fault
from app.adapters.model_stream import Question, answer
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
        try:
            question = self._question(opening)
        except (Invalid, NotJson) as error:
            fault = Fault(FaultKind.INTERNAL, f"the request cannot be made: {error}", type="bad_request")
            raise ProviderError(fault) from None
        async with answer(self._client, question) as batches:
            yield batches

    def _question(self, opening: Opening) -> Question:
        """Raises `Invalid` and `NotJson`."""
        endpoint = opening.endpoint
        profile = profile_of(endpoint)

        def reader(response: httpx.Response) -> AnswerReader:
            return AnswerReader(profile.max_event_bytes, response.headers.get("content-type", ""))

        return Question(
            url=url_of(endpoint),
            headers=headers_of(endpoint),
            content=body_of(opening, profile),
            reader=reader,
            refusal=self._refusal,
            secrets=[endpoint.api_key] if endpoint.api_key else [],
        )

    def _refusal(self, response: httpx.Response, body: bytes) -> Fault:
        """What an answer with an error status says."""
        return in_full(status_fault(response.status_code, response.headers, body, self._now()))


PROVIDER = GeminiProvider
