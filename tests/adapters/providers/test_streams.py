"""Whole recorded answers, cut and framed in every way, say what an independent reader found in them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from app.adapters.chat_completions.answer import AnswerReader
from app.adapters.chat_completions.profile import Profile
from app.adapters.http_client import model_client
from app.adapters.providers.openai import OpenAIProvider
from tests.support.answers import Answer, ask, opening
from tests.support.model_server import Attempt, ModelServer
from tests.support.streams import STREAMS, Stream, own, smallest

every_stream = pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.file.stem)
the_smallest = pytest.mark.parametrize(
    "stream",
    {stream.file: stream for stream in (*own(), *smallest(3))}.values(),
    ids=lambda stream: stream.file.stem,
)


def check(answer: Answer, says: dict[str, Any]) -> None:
    """Compare an answer with what a stream says."""
    assert answer.text == says.get("text", answer.text)
    if "text_sha256" in says:
        assert len(answer.text) == says["text_chars"]
        assert hashlib.sha256(answer.text.encode()).hexdigest() == says["text_sha256"]
    assert answer.reasoning == says.get("reasoning", answer.reasoning)
    assert len(answer.reasoning) == says.get("reasoning_chars", len(answer.reasoning))
    assert answer.refusal == says.get("refusal", "")
    assert answer.finish == says.get("finish")
    if says.get("error_code") is None:
        assert answer.fault is None
        assert answer.ended == says.get("end_mark", False)
    else:
        assert answer.fault is not None
        assert answer.fault.provider_code == says["error_code"]
        assert answer.fault.status == says.get("status", answer.fault.status)
    assert list(answer.usage or ()) == says.get("usage", list(answer.usage or ()))
    wanted = says.get("tool_calls", [])
    assert answer.called == [(name, arguments) for _, name, arguments in wanted]
    for (id, _, _), call in zip(wanted, answer.calls.values(), strict=True):
        assert id is None or call.id == id


def read(*pieces: bytes) -> Answer:
    """What the reader finds in a body that comes in these pieces."""
    reader, answer = AnswerReader(Profile()), Answer()
    for piece in pieces:
        if not reader.over:
            answer.take(reader.feed(piece))
    if not reader.over:
        answer.take(reader.finish())
    answer.fault = reader.fault
    return answer


def test_every_kind_of_recording_has_a_small_twin() -> None:
    assert len(list(own())) >= 13


@every_stream
def test_read_at_once(stream: Stream) -> None:
    check(read(stream.body), stream.says)


@every_stream
def test_read_byte_by_byte(stream: Stream) -> None:
    body = stream.body
    check(read(*(body[at : at + 1] for at in range(len(body)))), stream.says)


@the_smallest
def test_read_cut_at_every_byte(stream: Stream) -> None:
    body = stream.body
    whole = read(body).without_chunks()
    for at in range(len(body)):
        assert read(body[:at], body[at:]).without_chunks() == whole, at


@every_stream
@pytest.mark.parametrize("end", [b"\r\n", b"\r"], ids=["crlf", "cr"])
def test_read_with_other_line_ends(stream: Stream, end: bytes) -> None:
    body = stream.body.replace(b"\n", end)
    check(read(body), stream.says)
    check(read(*(body[at : at + 1] for at in range(len(body)))), stream.says)


@the_smallest
def test_read_with_crlf_cut_at_every_byte(stream: Stream) -> None:
    body = stream.body.replace(b"\n", b"\r\n")
    whole = read(stream.body).without_chunks()
    for at in range(len(body)):
        assert read(body[:at], body[at:]).without_chunks() == whole, at


@pytest.mark.anyio
@every_stream
@pytest.mark.parametrize("framing", ["eof", "chunked"])
async def test_read_over_the_network(stream: Stream, framing: Any) -> None:
    attempt = Attempt([stream.body], framing=framing, write_size=700)
    async with ModelServer({"m": [attempt]}) as server, model_client() as client:
        check(await ask(OpenAIProvider(client), opening("openai", base_url=server.base_url)), stream.says)
