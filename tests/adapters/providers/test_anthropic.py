"""The Messages provider over the network; what it shares with others is tested in `test_openai.py`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from app.adapters.http_client import model_client
from app.adapters.providers.anthropic import AnthropicProvider
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind
from app.core.prompt import Prompt, PromptMessage
from app.ports.provider import ModelEndpoint
from tests.support import messages_wire
from tests.support.answers import Answer, ask, opening
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until

pytestmark = pytest.mark.anyio

SECRET = "sk-ant-very-secret-0001"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
async def provider() -> AsyncIterator[AnthropicProvider]:
    async with model_client() as client:
        yield AnthropicProvider(client, now=lambda: NOW)


async def answer_to(provider: AnthropicProvider, attempt: Attempt, **more: Any) -> Answer:
    """What comes of one attempt."""
    async with ModelServer({"m": [attempt]}) as server:
        return await ask(provider, opening("anthropic", base_url=server.base_url, **more))


async def test_the_request(provider: AnthropicProvider) -> None:
    async with ModelServer({"m": [Attempt(messages_wire.text("hi"))]}) as server:
        what = opening("anthropic", base_url=server.base_url, api_key=SECRET, options={"max_tokens": 5})
        assert (await ask(provider, what)).text == "hi"
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (SECRET, "2023-06-01")
    assert "authorization" not in request.headers
    assert (request.body["stream"], request.body["max_tokens"]) == (True, 5)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (529, "overloaded_error"),
    ],
)
async def test_an_error_status_fails_the_opening(provider: AnthropicProvider, status: int, kind: str) -> None:
    words = {"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_1"}
    headers = {"retry-after": "30", "request-id": "req_1"}
    attempt = Attempt([json.dumps(words).encode()], status, "application/json", headers, framing="length")
    answer = await answer_to(provider, attempt)
    assert not answer.opened
    assert answer.fault == Fault(
        FaultKind.STATUS, f"HTTP {status}: no", kind, status, None, 30_000, {"request_id": "req_1"}
    )


async def test_an_error_in_the_place_of_a_stream_has_its_status(provider: AnthropicProvider) -> None:
    body = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}).encode()
    answer = await answer_to(provider, Attempt([body], content_type="application/json"))
    assert not answer.opened
    assert answer.fault == Fault(FaultKind.IN_STREAM, "no", "overloaded_error", 529)


@pytest.mark.parametrize("header", ["X-Other-Key", "Authorization"])
async def test_no_credential_is_in_a_fault(provider: AnthropicProvider, header: str) -> None:
    hush = "hush-hush-0002"
    told = messages_wire.error("authentication_error", f"bad {SECRET} or {hush}")
    answer = await answer_to(provider, Attempt([told]), api_key=SECRET, options={"headers": {header: hush}})
    assert answer.fault is not None
    assert answer.fault.message == "bad [redacted] or [redacted]"


async def test_connections_are_kept_between_answers(provider: AnthropicProvider) -> None:
    attempt = Attempt(messages_wire.text("a"), framing="chunked", then="keep")
    async with ModelServer({"m": [attempt]}) as server:
        what = opening("anthropic", base_url=server.base_url)
        for _ in range(3):
            assert (await ask(provider, what)).ended
            await until(lambda: server.answered == len(server.requests))
        assert server.connections == 1


async def test_a_request_that_cannot_be_made_asks_nobody(provider: AnthropicProvider) -> None:
    picture = Prompt([PromptMessage("user", "x", images=["data:,x"])])
    async with ModelServer({"m": [Attempt(messages_wire.text("a"))]}) as server:
        for what in (
            opening("anthropic", base_url=server.base_url, options={"unknown": 1}),
            opening("anthropic", base_url="no url"),
            opening("anthropic", base_url=server.base_url, api_key="k\n"),
            opening("anthropic", base_url=server.base_url, prompt=picture),
        ):
            answer = await ask(provider, what)
            assert answer.fault is not None
            assert (answer.fault.kind, answer.fault.type) == (FaultKind.INTERNAL, "bad_request")
        assert server.requests == []


async def test_options_and_the_base_url_are_checked(provider: AnthropicProvider) -> None:
    provider.check(ModelEndpoint("m", "anthropic", "m", "http://h.test/v1", options={"prefill": False}))
    for endpoint, pointer in (
        (ModelEndpoint("m", "anthropic", "m", options={"unknown": 1}), "/options/unknown"),
        (ModelEndpoint("m", "anthropic", "m", "ftp://h.test"), "/base_url"),
    ):
        with pytest.raises(Invalid) as caught:
            provider.check(endpoint)
        assert [error.pointer for error in caught.value.errors] == [pointer]
