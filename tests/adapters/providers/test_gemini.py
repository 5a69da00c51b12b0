"""The Gemini provider over the network, and its reader on bytes that are cut anywhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.gemini_content.answer import AnswerReader
from app.adapters.http_client import ModelClient, model_client
from app.adapters.providers.gemini import GeminiProvider
from app.core.chunks import KeepAlive
from app.core.faults import Fault, FaultKind
from app.core.prompt import Prompt
from app.ports.provider import ModelEndpoint
from tests.support import cases, gemini_wire
from tests.support.answers import HELLO, Answer, ask, opening
from tests.support.chat_wire import event
from tests.support.model_server import Attempt, ModelServer

MOST = 10_000
SECRET = "AIza-very-secret-0001"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BODIES = {
    id: "".join(case["input"]["chunks"]).encode()
    for id, case in cases.load("1-provider-stream", "gemini_cases.jsonl").items()
    if case["input"]["http_status"] == 200
}


@pytest.fixture
async def client() -> AsyncIterator[ModelClient]:
    async with model_client() as client:
        yield client


def read(*pieces: bytes, content_type: str = "text/event-stream", most: int = MOST) -> Answer:
    """What the reader finds in a body that comes in these pieces."""
    reader, answer = AnswerReader(most, content_type), Answer()
    for piece in pieces:
        if not reader.over:
            answer.take(reader.feed(piece))
    if not reader.over:
        answer.take(reader.finish())
    answer.fault = reader.fault
    return answer


async def answer_to(client: ModelClient, attempt: Attempt, **more: Any) -> Answer:
    """What comes of one attempt."""
    async with ModelServer({"m": [attempt]}) as server:
        provider = GeminiProvider(client, now=lambda: NOW)
        return await ask(provider, opening("gemini", base_url=server.base_url, **more))


async def refusal(client: ModelClient, said: Any, status: int = 429, **more: Any) -> Fault:
    """The fault of an answer with an error status."""
    answer = await answer_to(client, Attempt([json.dumps(said).encode()], status, "application/json", **more))
    assert answer.fault is not None
    assert not answer.opened
    return answer.fault


@pytest.mark.parametrize("id", BODIES)
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json", ""])
def test_bytes_may_be_cut_anywhere(id: str, content_type: str) -> None:
    body = BODIES[id]
    whole = read(body, content_type=content_type).without_chunks()
    singly = read(*(body[at : at + 1] for at in range(len(body))), content_type=content_type)
    assert (singly.fault is None) == (whole.fault is None)
    singly.fault = whole.fault  # which quotes as much as had come
    assert singly.without_chunks() == whole
    for at in range(1, len(body), 7):
        assert read(body[:at], body[at:], content_type=content_type).text == whole.text


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_no_bytes_make_the_reader_stumble(pieces: list[bytes]) -> None:
    read(b"data: ", *pieces, b"\n\n")
    read(*pieces, content_type="")


@pytest.mark.parametrize(
    ("said", "type"),
    [
        (b"data: {no json}\n\n", "malformed"),
        (b"data: [1]\n\n", "malformed"),
        (b"data: " + b"x" * MOST + b"\n\n", "too_large"),
        (b"<html>", "malformed"),
        (b"[{}]", "not_an_event_stream"),
        (b' {"a": "' + b"x" * MOST, "malformed"),
        (b'{"choices": []}', "malformed"),
        (b'{"candidates": [', "malformed"),
    ],
)
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
def test_what_is_no_answer_is_malformed(said: bytes, type: str, content_type: str) -> None:
    fault = read(said, content_type=content_type).fault
    assert fault is not None
    assert (fault.kind, fault.type) == (FaultKind.MALFORMED, type)


def test_one_object_is_no_longer_than_an_event() -> None:
    fault = read(b'{"a": "', *[b"x" * 1000] * 20, content_type="").fault
    assert fault is not None
    assert fault.type == "too_large"


def test_an_event_that_says_nothing_shows_that_the_server_lives() -> None:
    reader = AnswerReader(MOST)
    for piece in (b": hello\r\n\r\n", event({"candidates": []}), event({}), gemini_wire.said(), b"da"):
        assert reader.feed(piece) == [KeepAlive()]


def test_counts_that_an_event_leaves_out_stay() -> None:
    counts = [
        {"promptTokenCount": 5, "thoughtsTokenCount": 2},
        {"candidatesTokenCount": 3},
        {"x": 1},
        None,
        7,
    ]
    answer = read(*(event({"usageMetadata": one}) for one in counts))
    assert answer.usage == (5, 5)


@pytest.mark.parametrize(
    "odd",
    [
        {"candidates": {"a": 1}},
        {"candidates": [3]},
        {"candidates": [{"content": {"parts": "text"}}]},
        {"candidates": [{"content": {"parts": ["text", {"text": 3}, {"functionCall": "f"}]}}]},
        {"candidates": [{"finishReason": "FINISH_REASON_UNSPECIFIED"}]},
        {"promptFeedback": {"blockReason": "BLOCK_REASON_UNSPECIFIED"}},
        {"promptFeedback": []},
    ],
)
def test_odd_events_say_nothing(odd: dict[str, Any]) -> None:
    answer = read(event(odd))
    assert (answer.text, answer.called, answer.finish_raw, answer.ended) == ("", [], None, False)
    assert answer.fault is None


def test_a_call_in_fragments_is_not_taken_for_a_whole_one() -> None:
    part = {"functionCall": {"name": "f", "partialArgs": [], "willContinue": True}}
    answer = read(gemini_wire.said(part))
    assert answer.called == []
    assert answer.fault is not None
    assert answer.fault.kind is FaultKind.MALFORMED


def test_an_intermediarys_end_mark_is_no_end() -> None:
    assert not read(b"data: [DONE]\n\n").ended
    assert read(*gemini_wire.text("a"), b"data: [DONE]\n\n").ended


@pytest.mark.anyio
async def test_the_request(client: ModelClient) -> None:
    async with ModelServer({"m": [Attempt(gemini_wire.text("hi"))]}) as server:
        what = opening("gemini", base_url=f"{server.base_url}?a=b", api_key=SECRET)
        assert (await ask(GeminiProvider(client), what)).text == "hi"
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/models/m:streamGenerateContent?a=b&alt=sse")
    assert request.headers["x-goog-api-key"] == SECRET
    assert request.body == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("delay", "headers", "waits"),
    [
        ("34.074824224s", {}, 34_074),
        ("2s", {}, 2_000),
        ("0.5s", {}, 500),
        ("2s", {"Retry-After": "7"}, 7_000),
        ("soon", {}, None),
        (3, {}, None),
    ],
)
async def test_how_long_to_wait(
    client: ModelClient, delay: Any, headers: dict[str, str], waits: int | None
) -> None:
    details = [{"@type": "x"}, 3, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]
    error = {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED", "details": details}
    fault = await refusal(client, {"error": error}, headers=headers)
    assert (fault.status, fault.type, fault.retry_after_ms) == (429, "RESOURCE_EXHAUSTED", waits)
    later = read(gemini_wire.said({"text": "a"}), event({"error": error})).fault
    assert later is not None
    assert later.kind is FaultKind.IN_STREAM
    assert (later.status, later.type) == (429, "RESOURCE_EXHAUSTED")


@pytest.mark.anyio
async def test_a_fault_does_not_quote_the_key(client: ModelClient) -> None:
    said = {"error": {"code": 400, "message": f"API key {SECRET} not valid", "status": "INVALID_ARGUMENT"}}
    attempt = Attempt([json.dumps(said).encode()], 400)
    fault = (await answer_to(client, attempt, api_key=SECRET)).fault
    assert fault is not None
    assert SECRET not in str(fault)
    assert "not valid" in fault.message


@pytest.mark.anyio
async def test_a_request_that_cannot_be_made(client: ModelClient) -> None:
    answer = await answer_to(client, Attempt(), prompt=Prompt(HELLO.messages, options={"top_p": 1}))
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.type) == (FaultKind.INTERNAL, "bad_request")
    assert "top_p" in answer.fault.message


@pytest.mark.anyio
async def test_a_schema_is_put_into_the_dialect_unless_it_is_sent_as_it_is(client: ModelClient) -> None:
    provider = GeminiProvider(client)
    project = provider.capabilities(ModelEndpoint("n", "gemini", "m")).project_schema
    assert project is not None
    assert project({"type": "string"}) == {"type": "STRING"}
    plain = ModelEndpoint("n", "gemini", "m", options={"json_schema": True})
    assert provider.capabilities(plain).project_schema is None
