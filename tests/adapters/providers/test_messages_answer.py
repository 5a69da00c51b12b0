"""What is read out of a Messages answer."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from app.adapters.anthropic_messages.answer import AnswerReader
from app.adapters.anthropic_messages.events import FINISH_REASONS, STATUSES
from app.adapters.anthropic_messages.profile import MessagesProfile
from app.core.chunks import KeepAlive, OpaqueBlocks, ToolCallDelta
from app.core.faults import FaultKind
from tests.conftest import DATA, SHARED
from tests.support.answers import Answer
from tests.support.messages_wire import block, delta, end, error, event, start, stop, text

TOOL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}


def read(*pieces: bytes, content_type: str = "text/event-stream", **options: Any) -> Answer:
    """What a reader makes of these pieces."""
    reader, answer = AnswerReader(MessagesProfile(**options), content_type), Answer()
    for piece in pieces:
        if not reader.over:
            answer.take(reader.feed(piece))
    if not reader.over:
        answer.take(reader.finish())
    answer.fault = reader.fault
    answer.opened = reader.is_answer
    return answer


def json_delta(piece: str, index: int = 0) -> bytes:
    return delta(index, "input_json_delta", partial_json=piece)


def test_thoughts_their_signature_and_what_is_hidden_are_no_text() -> None:
    answer = read(
        start(),
        block(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="c2ln"),
        stop(0),
        block(1, {"type": "redacted_thinking", "data": "c2VjcmV0"}),
        stop(1),
        block(2, {"type": "text", "text": "A"}),
        delta(2, "text_delta", text="nswer"),
        stop(2),
        end("end_turn"),
    )
    assert (answer.text, answer.reasoning, answer.finish, answer.ended) == ("Answer", "hm", "stop", True)


# Without anything that it wants back, a paused answer cannot go on.
AT_ONCE = {**FINISH_REASONS, "pause_turn": "length", "something_new": None}


@pytest.mark.parametrize(("raw", "reason"), AT_ONCE.items())
def test_reasons_to_stop(raw: str, reason: str | None) -> None:
    answer = read(*text("a", finish=raw))
    assert (answer.finish, answer.finish_raw) == (reason, raw)


def test_a_reason_to_stop_is_told_at_the_end_and_no_null_takes_it_back() -> None:
    said = event("message_delta", delta={"stop_reason": "max_tokens"})
    assert read(start(), said).finish_raw is None
    answer = read(start(), said, event("message_delta", delta={"stop_reason": None}), event("message_stop"))
    assert (answer.finish, answer.ended) == ("length", True)


def test_each_fragment_of_a_call_is_told_as_it_comes() -> None:
    answer = read(start(), block(3, TOOL), json_delta("", 3), json_delta('{"a"', 3), json_delta(": 1}", 3))
    assert [chunk for chunk in answer.chunks if not isinstance(chunk, KeepAlive)] == [
        ToolCallDelta(0, "toolu_1", "add"),
        ToolCallDelta(0, arguments='{"a"'),
        ToolCallDelta(0, arguments=": 1}"),
    ]


@pytest.mark.parametrize(
    ("given", "fragments", "arguments"),
    [
        ({}, [], ""),
        ({}, [""], ""),
        ({"a": 1}, [], '{"a":1}'),
        ({"a": 1}, ['{"a"', ": 2}"], '{"a": 2}'),
        ({"n": 12345678901234567890123}, [], '{"n":12345678901234567890123}'),
        (None, ["{}"], "{}"),
        ('{"a": 1}', [], '{"a": 1}'),
    ],
)
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "never stopped"])
def test_arguments_of_a_call(given: Any, fragments: list[str], arguments: str, stopped: bool) -> None:
    pieces = map(json_delta, fragments)
    answer = read(start(), block(0, {**TOOL, "input": given}), *pieces, *[stop(0)] * stopped, end("tool_use"))
    assert answer.called == [("add", arguments)]


def test_calls_are_counted_apart_from_other_blocks_and_may_interleave() -> None:
    answer = read(
        start(),
        block(0, {"type": "text", "text": ""}),
        block(1, TOOL),
        block(2, {**TOOL, "id": "toolu_2", "name": "now"}),
        json_delta('{"b":', 2),
        json_delta('{"a":1}', 1),
        json_delta("2}", 2),
        end("tool_use"),
    )
    assert answer.called == [("add", '{"a":1}'), ("now", '{"b":2}')]
    assert [call.id for call in answer.calls.values()] == ["toolu_1", "toolu_2"]


def test_what_is_not_known_says_nothing() -> None:
    answer = read(
        start(),
        event("message_start_of_something"),
        event("errors", error={"type": "api_error"}),
        block(0, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        json_delta('{"query": "x"}'),
        stop(0),
        block(1, {"type": "web_search_tool_result", "content": [{"type": "text", "text": "found"}]}),
        block(2, {"type": "text"}),
        delta(2, "citations_delta", citation={"cited_text": "x"}),
        delta(2, "text_delta"),
        delta(2, "text_delta", text=None),
        delta(2, "text_delta", text="ok"),
        delta(7, "input_json_delta", partial_json="{"),
        stop(9),
        event("content_block_delta", index=[2], delta=None),
        end("end_turn"),
    )
    assert (answer.text, answer.called, answer.fault, answer.ended) == ("ok", [], None, True)


@pytest.mark.parametrize(
    "raw",
    [
        b": comment\n\n",
        event("ping"),
        b"event: ping\ndata: not json\n\n",
        b"event: message_stop\n\n",
        b"data:\n\n",
        event("message_start", message={"usage": None}),
    ],
)
def test_a_sign_of_life_and_nothing_else(raw: bytes) -> None:
    reader = AnswerReader(MessagesProfile())
    reader.feed(start())
    assert reader.feed(raw) == [KeepAlive()]
    assert not reader.over


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        ([start(input_tokens=10, output_tokens=1), end("end_turn", {"output_tokens": 7})], (10, 7)),
        ([start(input_tokens=10, output_tokens=9), end("end_turn", {"output_tokens": 7})], (10, 7)),
        ([start(input_tokens=1), end("end_turn", {"input_tokens": 5, "output_tokens": 2})], (5, 2)),
        ([start(input_tokens=1, cache_read_input_tokens=2, cache_creation_input_tokens=4)], (7, 0)),
        ([start(), end("end_turn", {"output_tokens": 7})], (0, 7)),
        ([start(), end("end_turn")], None),
        ([start(), end("end_turn", {"service_tier": 1})], None),
    ],
)
def test_usage_is_a_total_each_time(events: list[bytes], usage: tuple[int, int] | None) -> None:
    assert read(*events).usage == usage


@pytest.mark.parametrize(("kind", "status"), [*STATUSES.items(), ("something_new", None)])
def test_an_error_has_the_status_of_its_type(kind: str, status: int | None) -> None:
    answer = read(start(), error(kind, "no"))
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.type, answer.fault.status) == (FaultKind.IN_STREAM, kind, status)
    assert answer.fault.message == "no"


@pytest.mark.parametrize(
    "raw",
    [
        b'event: error\ndata: {"error": {"type": "overloaded_error", "message": "no"}}\n\n',
        b'data: {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}\n\n',
        b'data: {"error": {"type": "overloaded_error", "message": "no"}}\n\n',
        b'event: error\ndata: {"type": "overloaded_error", "message": "no"}\n\n',
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}',
    ],
)
def test_forms_of_an_error(raw: bytes) -> None:
    answer = read(start(), raw)
    assert answer.fault is not None
    assert (answer.fault.status, answer.fault.message) == (529, "no")


def test_an_error_that_is_no_json() -> None:
    fault = read(b"event: error\ndata: upstream is gone\n\n").fault
    assert fault is not None
    assert (fault.kind, fault.message) == (FaultKind.IN_STREAM, "upstream is gone")


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"data: {no json}\n\n", "malformed"),
        (b"data: [1]\n\n", "malformed"),
        (start(), "spliced"),
        (b"data: " + b"x" * 2000, "too_large"),
    ],
)
def test_what_breaks_the_wire(raw: bytes, word: str) -> None:
    answer = read(*text("a")[:3], raw, max_event_bytes=1024)
    assert answer.fault is not None
    assert (answer.text, answer.fault.kind, answer.fault.type) == ("a", FaultKind.MALFORMED, word)


def test_a_beginning_that_is_repeated_before_anything_was_said_is_none() -> None:
    answer = read(start(input_tokens=1), *text("a"))
    assert (answer.text, answer.ended, answer.fault) == ("a", True, None)


def test_half_characters_are_put_together() -> None:
    answer = read(
        start(),
        block(0, {"type": "text"}),
        delta(0, "text_delta", text="a\ud83e"),
        delta(0, "text_delta", text="\udda6b"),
    )
    assert answer.text == "a🦦b"


MESSAGE: dict[str, Any] = {
    "type": "message",
    "content": [{"type": "text", "text": "whole"}, {**TOOL, "input": {"a": 1}}],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", ""])
def test_a_whole_message_is_an_answer(content_type: str) -> None:
    body = json.dumps(MESSAGE).encode()
    answer = read(body[:9], body[9:], content_type=content_type)
    assert (answer.text, answer.called, answer.usage) == ("whole", [("add", '{"a":1}')], (3, 4))
    assert (answer.finish, answer.ended, answer.opened) == ("tool_calls", True, True)


@pytest.mark.parametrize("content_type", ["text/html", ""])
@pytest.mark.parametrize(
    "body", [b"<html>Sign in</html>", b"<p>", b"", b"{}", b"{", b'{"type": "ping"}', b"even"]
)
def test_what_is_no_answer_is_not_opened(body: bytes, content_type: str) -> None:
    answer = read(body, content_type=content_type)
    assert answer.fault is not None
    assert (answer.opened, answer.fault.kind) == (False, FaultKind.MALFORMED)


@pytest.mark.parametrize("body", [b"", b"e", b"event", b":", b"\n", b"\xef\xbb", b"\xef\xbb\xbf", b"data: {"])
def test_a_stream_that_is_cut_at_its_beginning_is_only_incomplete(body: bytes) -> None:
    answer = read(body)
    assert (answer.opened, answer.ended, answer.fault) == (True, False, None)


def test_a_stream_shows_without_its_content_type() -> None:
    answer = read(b"\xef\xbb\xbf\r\n", *text("a", "b"), content_type="")
    assert (answer.text, answer.opened, answer.ended) == ("ab", True, True)


@pytest.mark.parametrize(
    ("content", "pieces", "kept"),
    [
        ({"type": "new_kind", "a": [1.50]}, [], True),
        ({"type": "new_kind", "a": 1}, [{"type": "new_delta", "a": 2}], False),
        (
            {"type": "server_tool_use", "input": {}},
            [{"type": "input_json_delta", "partial_json": '{"a'}],
            False,
        ),
        (
            {"type": "server_tool_use", "input": {}},
            [{"type": "input_json_delta", "partial_json": '{"a": NaN}'}],
            False,
        ),
        ({"type": "new_kind", "a": float("inf")}, [], False),
        ({"type": "web_search_tool_result", "content": "x" * 600_000}, [], False),
        ({"type": "text", "text": "b", "citations": 5}, [], False),
        ({"type": "text", "text": "b", "citations": [{"c": 1}]}, [], True),
        ({"type": "thinking", "thinking": "b", "signature": ""}, [], False),
        ({"type": "thinking", "thinking": "", "signature": "s"}, [], True),
    ],
)
def test_only_what_is_whole_is_wanted_back(
    content: dict[str, Any], pieces: list[dict[str, Any]], kept: bool
) -> None:
    deltas = [delta(1, one["type"], **{k: v for k, v in one.items() if k != "type"}) for one in pieces]
    body = [*text("a")[:-1], block(1, content), *deltas, stop(1), end("pause_turn")]
    answer = read(*body)
    assert any(isinstance(chunk, OpaqueBlocks) and chunk.blocks for chunk in answer.chunks) is kept
    assert (answer.finish, answer.finish_raw) == ("paused" if kept else "length", "pause_turn")


# Recorded answers and a small twin


def recorded() -> list[dict[str, Any]]:
    folder = SHARED / "cases" / "recorded"
    index = folder / "index.json"
    found = json.loads(index.read_text("utf-8")) if index.is_file() else []
    theirs = [
        {"file": folder / one["file"], **one["decoded"]}
        for one in found
        if one["wire"] == "anthropic-messages"
    ]
    ours = json.loads((DATA / "messages" / "index.json").read_text("utf-8"))
    return [*theirs, *({"file": DATA / "messages" / one["file"], **one["decoded"]} for one in ours)]


every_recording = pytest.mark.parametrize("says", recorded(), ids=lambda says: says["file"].stem)


def check(answer: Answer, says: dict[str, Any]) -> None:
    assert hashlib.sha256(answer.text.encode()).hexdigest() == says["text_sha256"]
    assert (len(answer.text), len(answer.reasoning)) == (says["text_chars"], says["reasoning_chars"])
    assert (answer.finish_raw, answer.ended, answer.fault) == (says["finish"], True, None)
    assert [(name, raw or "{}") for name, raw in answer.called] == [
        (call["name"], call["arguments"]) for call in says["tool_calls"]
    ]


@every_recording
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_recorded(says: dict[str, Any], line_end: bytes) -> None:
    check(read(says["file"].read_bytes().replace(b"\n", line_end)), says)


@every_recording
def test_recorded_byte_by_byte(says: dict[str, Any]) -> None:
    body = says["file"].read_bytes()
    check(read(*(body[at : at + 1] for at in range(len(body)))), says)


@every_recording
def test_recorded_and_cut_is_never_complete(says: dict[str, Any]) -> None:
    body = says["file"].read_bytes()
    last = body.rindex(b"event: message_stop")
    for size in range(0, last, 1 + last // 400):
        answer = read(body[:size])
        assert (answer.ended, answer.finish_raw, answer.fault) == (False, None, None), size
