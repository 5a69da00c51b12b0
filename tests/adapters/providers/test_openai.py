"""The chat completions provider over the network."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from app.adapters import model_exchange
from app.adapters.http_client import ModelClient, model_client
from app.adapters.providers.openai import OpenAIProvider
from app.core.chunks import KeepAlive, TextDelta
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.prompt import Prompt, PromptMessage
from app.ports.provider import Capabilities, ModelEndpoint, Opening
from tests.support import chat_wire
from tests.support.answers import Answer, ask, opening
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECRET = "sk-very-secret-0001"


@pytest.fixture
async def client() -> AsyncIterator[ModelClient]:
    async with model_client() as client:
        yield client


@pytest.fixture
def provider(client: ModelClient) -> OpenAIProvider:
    return OpenAIProvider(client, now=lambda: NOW)


async def answer_to(provider: OpenAIProvider, attempt: Attempt, **more: Any) -> Answer:
    """What comes of one attempt."""
    async with ModelServer({"m": [attempt]}) as server:
        return await ask(provider, opening("openai", base_url=server.base_url, **more))


async def fault_of(provider: OpenAIProvider, attempt: Attempt, **more: Any) -> Fault:
    """The fault of an attempt that fails."""
    answer = await answer_to(provider, attempt, **more)
    assert answer.fault is not None
    return answer.fault


async def test_the_request(provider: OpenAIProvider) -> None:
    async with ModelServer({"m": [Attempt(chat_wire.text("hi"))]}) as server:
        options = {"headers": {"X-Org": "org"}}
        what = opening("openai", base_url=server.base_url, api_key=SECRET, options=options)
        assert (await ask(provider, what)).text == "hi"
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.headers["x-org"] == "org"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept"] == "text/event-stream"
    assert request.body["stream"] is True


async def test_each_read_gives_its_chunks_together(provider: OpenAIProvider) -> None:
    two = chat_wire.delta({"content": "a"}) + chat_wire.delta({"content": "b"})
    attempt = Attempt([b": hello\n\n", 0.05, two, 0.05, chat_wire.DONE], framing="chunked", then="keep")
    async with (
        ModelServer({"m": [attempt]}) as server,
        provider.open(opening("openai", base_url=server.base_url)) as batches,
    ):
        got = [list(batch) async for batch in batches]
    assert got[:2] == [[KeepAlive()], [TextDelta("a"), TextDelta("b")]]


@pytest.mark.parametrize("status", [301, 400, 401, 404, 408, 429, 500, 503])
async def test_an_error_status_fails_the_opening(provider: OpenAIProvider, status: int) -> None:
    body = json.dumps({"error": {"message": "no", "type": "t", "code": "c"}}).encode()
    headers = {"Retry-After": "Fri, 02 Jan 2026 03:04:35 GMT", "X-Request-Id": "r"}
    answer = await answer_to(provider, Attempt([body], status, "application/json", headers, framing="length"))
    assert not answer.opened
    assert answer.fault == Fault(
        FaultKind.STATUS, f"HTTP {status}: no", "t", status, "c", 30_000, {"request_id": "r"}
    )


@pytest.mark.parametrize(
    ("chunks", "within_s"),
    [([b"x" * 50_000] * 4, 3600.0), ([b"x"], 0.01)],
    ids=["in length", "in time"],
)
async def test_an_endless_error_body_is_bounded(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, chunks: list[bytes], within_s: float
) -> None:
    monkeypatch.setattr(model_exchange, "ERROR_BODY_S", within_s)
    async with ModelServer({"m": [Attempt(chunks, 500, "text/plain", then="hang")]}) as server:
        async with asyncio.timeout(10):
            answer = await ask(provider, opening("openai", base_url=server.base_url))
        await until(lambda: server.left_early)
    assert answer.fault is not None
    assert answer.fault.status == 500


async def test_an_error_body_that_is_cut_leaves_the_status(provider: OpenAIProvider) -> None:
    fault = await fault_of(provider, Attempt([b'{"err'], 500, framing="length", cut=True))
    assert (fault.kind, fault.status) == (FaultKind.STATUS, 500)


async def test_a_page_in_the_place_of_an_answer_fails_the_opening(provider: OpenAIProvider) -> None:
    answer = await answer_to(provider, Attempt([b"<html>Sign in</html>"], content_type="text/html"))
    assert not answer.opened
    assert answer.fault is not None
    assert answer.fault.kind is FaultKind.MALFORMED


async def test_an_error_object_as_json_fails_the_opening(provider: OpenAIProvider) -> None:
    answer = await answer_to(
        provider, Attempt([b'{"error": {"message": "no"}}'], content_type="application/json")
    )
    assert not answer.opened
    assert answer.fault == Fault(FaultKind.IN_STREAM, "no")


async def test_a_whole_completion_is_one_answer(provider: OpenAIProvider) -> None:
    body = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    for framing in ("length", "chunked", "eof"):
        attempt = Attempt([json.dumps(body).encode()], content_type="application/json", framing=framing)
        answer = await answer_to(provider, attempt)
        assert (answer.text, answer.finish, answer.ended) == ("whole", "stop", True)


async def test_a_whole_completion_may_be_as_long_as_any_other_answer(provider: OpenAIProvider) -> None:
    body = json.dumps({"choices": [{"message": {"content": "x" * 3_000}, "finish_reason": "stop"}]}).encode()
    attempt = Attempt([body], content_type="application/json", write_size=500)
    assert (await answer_to(provider, attempt, options={"max_answer_bytes": len(body)})).ended
    answer = await answer_to(provider, attempt, options={"max_answer_bytes": len(body) - 1})
    assert not answer.opened
    assert answer.fault is not None
    assert answer.fault.type == "too_large"


async def test_a_stream_without_a_content_type_is_read_as_it_comes(provider: OpenAIProvider) -> None:
    attempt = Attempt([*chat_wire.text("a", "b")], content_type=None)
    assert (await answer_to(provider, attempt)).text == "ab"


async def test_nobody_listens(provider: OpenAIProvider) -> None:
    async with ModelServer() as server:
        what = opening("openai", base_url=server.base_url)
    answer = await ask(provider, what)
    assert not answer.opened
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.type) == (FaultKind.NETWORK, "connection_refused")


@pytest.mark.parametrize(
    ("attempt", "kind", "word"),
    [
        (Attempt([*chat_wire.text("a")[:2], 0.05], then="reset"), FaultKind.NETWORK, "connection_reset"),
        (
            Attempt(chat_wire.text("a")[:2], framing="chunked", cut=True),
            FaultKind.NETWORK,
            "connection_closed",
        ),
        (Attempt([*chat_wire.text("a")[:2], b"data: nonsense\n\n"]), FaultKind.MALFORMED, "malformed"),
    ],
)
async def test_what_came_before_a_fault_is_given(
    provider: OpenAIProvider, attempt: Attempt, kind: FaultKind, word: str
) -> None:
    answer = await answer_to(provider, attempt)
    assert (answer.opened, answer.text) == (True, "a")
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.type) == (kind, word)


async def test_the_key_is_in_no_fault(provider: OpenAIProvider, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    header = "hush-hush-0002"
    quoted = {"error": {"message": f"bad {SECRET}", "param": {"k": [header]}, "code": SECRET}}
    body = json.dumps(quoted).encode()
    attempts = [
        Attempt([body], 401, "application/json"),
        Attempt([body], content_type="application/json"),
        Attempt([chat_wire.event(quoted)]),
        Attempt([f"data: {SECRET} {header}\n\n".encode()]),
        Attempt([f"<p>{SECRET}".encode()], content_type="text/html"),
        Attempt(head=f"{SECRET}\r\n\r\n".encode()),
    ]
    for attempt in attempts:
        options = {"headers": {"X-Other-Key": header}}
        async with ModelServer({"m": [attempt]}) as server:
            what = opening("openai", base_url=server.base_url, api_key=SECRET, options=options)
            with pytest.raises(ProviderError) as caught:
                await drain(provider, what)
        told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.fault) + caplog.text
        assert SECRET not in told
        assert header not in told
    assert SECRET not in repr(what.endpoint)


async def test_the_key_is_in_no_reason_to_stop(provider: OpenAIProvider) -> None:
    for word, told in (
        (f"blocked: {SECRET}", "blocked: [redacted]"),
        (f"{SECRET[:14]} is no key", "[redacted] is no key"),
        ("out_of_breath", "out_of_breath"),
    ):
        said = [chat_wire.delta({"content": "a"}), chat_wire.delta({}, word), chat_wire.DONE]
        answer = await answer_to(provider, Attempt(said), api_key=SECRET)
        assert (answer.text, answer.finish, answer.finish_raw) == ("a", None, told)


async def drain(provider: OpenAIProvider, what: Opening) -> None:
    async with provider.open(what) as batches:
        async for _ in batches:
            pass


async def test_leaving_in_the_middle_closes_the_connection(provider: OpenAIProvider) -> None:
    async with ModelServer({"m": [Attempt(chat_wire.text("a")[:2], then="hang")]}) as server:
        async with provider.open(opening("openai", base_url=server.base_url)) as batches:
            async for _ in batches:
                break
        await until(lambda: server.left_early)


async def test_a_fault_closes_the_connection(provider: OpenAIProvider) -> None:
    attempt = Attempt([chat_wire.event({"error": "no"})], then="hang", framing="chunked")
    async with ModelServer({"m": [attempt]}) as server:
        assert (await ask(provider, opening("openai", base_url=server.base_url))).fault is not None
        await until(lambda: server.left_early)


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt(open_wait_s=60),
        Attempt(chat_wire.text("a")[:2], then="hang"),
        Attempt(status=500, then="hang", content_type="text/plain"),
        Attempt([b'{"choi'], content_type="application/json", then="hang"),
    ],
    ids=["before the answer", "in the answer", "in an error's body", "in a whole completion"],
)
async def test_a_cancelled_wait_closes_the_connection_and_leaves_nothing(
    provider: OpenAIProvider, attempt: Attempt
) -> None:
    async with ModelServer({"m": [attempt]}) as server:
        before = asyncio.all_tasks()
        waiting = asyncio.create_task(ask(provider, opening("openai", base_url=server.base_url)))
        await until(lambda: server.requests)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await until(lambda: server.left_early)
        await until(lambda: asyncio.all_tasks() <= before)


async def test_connections_are_kept_between_answers(provider: OpenAIProvider) -> None:
    attempt = Attempt(chat_wire.text("a"), framing="chunked", then="keep")
    async with ModelServer({"m": [attempt]}) as server:
        for _ in range(4):
            assert (await ask(provider, opening("openai", base_url=server.base_url))).ended
            await until(lambda: server.answered == len(server.requests))
        assert server.connections == 1


async def test_a_request_that_cannot_be_made_asks_nobody(provider: OpenAIProvider) -> None:
    bad_number = Prompt([PromptMessage("user", "x")], options={"temperature": float("nan")} | {"n": 1 << 80})
    async with ModelServer({"m": [Attempt(chat_wire.text("a"))]}) as server:
        for what in (
            opening("openai", base_url=server.base_url, options={"unknown": 1}),
            opening("openai", base_url="no url"),
            opening("openai", base_url=server.base_url, prompt=bad_number),
        ):
            answer = await ask(provider, what)
            assert answer.fault is not None
            assert (answer.fault.kind, answer.fault.type) == (FaultKind.INTERNAL, "bad_request")
        assert server.requests == []


async def test_capabilities_follow_the_options(provider: OpenAIProvider) -> None:
    plain = ModelEndpoint("m", "openai", "m")
    modest = ModelEndpoint("m", "openai", "m", options={"native_tools": False, "native_schema": False})
    assert provider.capabilities(plain) == Capabilities(tools=True, response_schema=True)
    assert provider.capabilities(modest) == Capabilities(tools=False, response_schema=False)


async def test_options_and_the_base_url_are_checked(provider: OpenAIProvider) -> None:
    provider.check(ModelEndpoint("m", "openai", "m", "http://h.test/v1", options={"include_usage": False}))
    for endpoint, pointer in (
        (ModelEndpoint("m", "openai", "m", options={"unknown": 1}), "/options/unknown"),
        (ModelEndpoint("m", "openai", "m", "ftp://h.test"), "/base_url"),
    ):
        with pytest.raises(Invalid) as caught:
            provider.check(endpoint)
        assert [error.pointer for error in caught.value.errors] == [pointer]
