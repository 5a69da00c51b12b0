"""What servers do to the wire format, one deviation at a time, and anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.chat_completions.answer import AnswerReader
from app.adapters.chat_completions.events import FINISH_REASONS
from app.adapters.chat_completions.profile import Profile
from app.core.chunks import Chunk, EndMark, KeepAlive, TextDelta
from app.core.faults import Fault, FaultKind
from tests.support.answers import Answer
from tests.support.chat_wire import DONE, delta, event


def read(*pieces: bytes, content_type: str = "text/event-stream", **options: Any) -> Answer:
    """What the reader finds in a body that comes in these pieces."""
    reader, answer = AnswerReader(Profile(**options), content_type), Answer()
    for piece in pieces:
        if not reader.over:
            answer.take(reader.feed(piece))
    if not reader.over:
        answer.take(reader.finish())
    answer.fault = reader.fault
    return answer


def fault_of(*pieces: bytes, **more: Any) -> Fault:
    fault = read(*pieces, **more).fault
    assert fault is not None
    return fault


def choice(**fields: Any) -> bytes:
    return event({"choices": [fields]})


@pytest.mark.parametrize("reason", FINISH_REASONS)
def test_reasons_to_stop_are_translated_and_kept(reason: str) -> None:
    for spelled in (reason, reason.upper()):
        answer = read(delta({"content": "x"}, spelled))
        assert (answer.finish, answer.finish_raw) == (FINISH_REASONS[reason], spelled)


def test_an_unknown_reason_to_stop_is_kept_as_it_is() -> None:
    answer = read(delta({"content": "x"}, "moonrise"))
    assert (answer.finish, answer.finish_raw) == (None, "moonrise")


def test_an_error_as_reason_to_stop_is_a_fault() -> None:
    assert fault_of(delta({"content": "x"}, "error"), DONE).kind is FaultKind.IN_STREAM
    explained = delta({"content": ""}, "error", error={"code": 502, "message": "provider gone"})
    assert (fault_of(explained).status, fault_of(explained).message) == (502, "provider gone")


@pytest.mark.parametrize(
    ("said", "text", "reasoning"),
    [
        ({"content": None, "reasoning_content": "r"}, "", "r"),
        ({"content": "", "reasoning": "r"}, "", "r"),
        ({"reasoning": "r", "reasoning_content": "r"}, "", "r"),
        ({"reasoning": "r", "reasoning_details": [{"text": "r"}]}, "", "r"),
        ({"reasoning": None, "reasoning_details": [{"text": "r"}, {"text": "s"}]}, "", "rs"),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}, None, 5]}, "", ""),
        ({"reasoning_details": "r"}, "", ""),
        ({"content": [{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "t"}]}, "t", "r"),
        (
            {"content": [{"type": "image_url", "image_url": {}}, {"type": "text", "text": None}, "t", None]},
            "",
            "",
        ),
        ({"content": {"text": "t"}}, "", ""),
        ({"content": 5, "reasoning": 5, "refusal": 5, "tool_calls": 5}, "", ""),
        ("text", "", ""),
        ([], "", ""),
    ],
)
def test_text_and_reasoning_where_they_stand(said: Any, text: str, reasoning: str) -> None:
    answer = read(delta(said), DONE)
    assert (answer.text, answer.reasoning, answer.fault) == (text, reasoning, None)


def test_a_message_counts_only_where_nothing_else_was_said() -> None:
    message = {"role": "assistant", "content": "whole"}
    assert read(choice(index=0, message=message, finish_reason="stop"), DONE).text == "whole"
    said = delta({"content": "whole"})
    assert read(said, choice(index=0, message=message, finish_reason="stop"), DONE).text == "whole"
    assert read(choice(index=0, message=message, delta={"content": "whole"}), DONE).text == "whole"


def test_the_old_form_of_a_tool_call() -> None:
    answer = read(
        delta({"function_call": {"name": "f", "arguments": "{"}}),
        delta({"function_call": {"arguments": "}"}}, "function_call"),
        DONE,
    )
    assert (answer.called, answer.finish) == ([("f", "{}")], "tool_calls")


def test_a_long_integer_in_an_arguments_object_keeps_its_digits() -> None:
    call = {"function": {"name": "f", "arguments": {"n": 12345678901234567890123}}}
    assert read(delta({"tool_calls": [call]}), DONE).called == [("f", '{"n":12345678901234567890123}')]


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 1, "completion_tokens": 2}, (1, 2)),
        ({"input_tokens": 1, "output_tokens": 2}, (1, 2)),
        ({"prompt_tokens": 1}, (1, 0)),
        ({}, None),
        (None, None),
        ({"prompt_tokens": None, "completion_tokens": "2"}, None),
        ("2", None),
    ],
)
def test_usage(usage: Any, counts: tuple[int, int] | None) -> None:
    assert read(event({"choices": [], "usage": usage}), DONE).usage == counts


@pytest.mark.parametrize(
    ("body", "kind", "message", "status", "code"),
    [
        (event({"error": {"message": "m", "code": 429}}), "in_stream", "m", 429, 429),
        (event({"error": {"message": "m", "code": "503"}}), "in_stream", "m", 503, "503"),
        (event({"error": {"message": "m", "code": "x", "status_code": 400}}), "in_stream", "m", 400, "x"),
        (event({"error": {"message": "m", "code": 7}}), "in_stream", "m", None, 7),
        (event({"error": {"message": "m", "code": "rate_limit_exceeded"}}), "in_stream", "m", 429, ...),
        (event({"error": "m"}), "in_stream", "m", None, None),
        (event({"error": {"detail": "m"}}), "in_stream", "m", None, None),
        (event({"object": "error", "message": "m", "code": 400}), "in_stream", "m", 400, 400),
        (event({"message": "m"}, name="error"), "in_stream", "m", None, None),
        (event({"error": {"message": "m"}}, name="error"), "in_stream", "m", None, None),
        (b"event: error\ndata: out of memory\n\n", "in_stream", "out of memory", None, None),
        (b"data: <html>\n\n", "malformed", "an event is no JSON: '<html>'", None, None),
        (b"data: 5\n\n", "malformed", "an event is no JSON object: '5'", None, None),
        (b"data: [1]\n\n", "malformed", "an event is no JSON object: '[1]'", None, None),
        (b"data: \xff\n\n", "malformed", "an event is no JSON: '\N{REPLACEMENT CHARACTER}'", None, None),
        (b"data: " + b"[" * 100_000 + b"\n\n", "malformed", ..., None, None),
    ],
)
def test_faults_in_the_stream(body: bytes, kind: str, message: Any, status: Any, code: Any) -> None:
    answer = read(delta({"content": "before"}) + body + delta({"content": "after"}) + DONE)
    assert answer.text == "before"
    assert answer.fault is not None
    assert answer.fault.kind == kind
    assert message is ... or answer.fault.message == message
    assert answer.fault.status == status
    assert code is ... or answer.fault.provider_code == code


def test_an_error_keeps_what_else_it_says_within_bounds() -> None:
    error = {
        "message": "m" * 9_000,
        "metadata": {"raw": "r"},
        "failed_generation": "g" * 99_000,
        "param": None,
    }
    fault = fault_of(event({"error": error}))
    assert len(fault.message) == 2_000
    assert fault.detail["metadata"] == {"raw": "r"}
    assert len(fault.detail["failed_generation"]) == 16_000
    assert "param" not in fault.detail


@pytest.mark.parametrize(
    "body",
    [
        b": comment\n\n",
        b"\n\n",
        b"\n",
        b"data:\n\n",
        b"data: null\n\n",
        b"data: {}\n\n",
        b"event: ping\ndata: now\n\n",
        event({"type": "ping"}),
        event({"choices": None}),
        event({"choices": "x"}),
        event({"choices": [None, 5]}),
        event({"choices": [], "error": None}),
        delta({"role": "assistant"}),
        delta({"role": "assistant", "content": ""}),
        delta(None),
        b"data: {half an eve",
    ],
)
def test_what_says_nothing_is_a_sign_of_life(body: bytes) -> None:
    reader = AnswerReader(Profile())
    assert reader.feed(body) == [KeepAlive()]
    assert not reader.over


def test_nothing_is_read_after_the_end_mark() -> None:
    answer = read(delta({"content": "a"}), DONE + delta({"content": "b"}) + b"data: <html>\n\n")
    assert (answer.text, answer.ended, answer.fault) == ("a", True, None)


@pytest.mark.parametrize(
    "mark", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE] \n\n", b"data: [DONE]"]
)
def test_the_end_mark_in_its_spellings(mark: bytes) -> None:
    assert read(delta({"content": "a"}), mark).ended


def test_events_that_end_with_one_line_feed() -> None:
    body = (delta({"content": "a"}) + delta({"content": "b"}, "stop") + DONE).replace(b"\n\n", b"\n")
    answer = read(body)
    assert (answer.text, answer.finish, answer.ended) == ("ab", "stop", True)


def test_the_last_event_counts_without_its_end_if_it_is_whole() -> None:
    whole = delta({"content": "b"}, "stop").strip()
    assert read(delta({"content": "a"}), whole).text == "ab"
    assert read(delta({"content": "a"}), whole[:-1]).text == "a"
    assert read(delta({"content": "a"}), whole[:-1]).fault is None
    assert fault_of(event({"error": {"message": "m"}}).strip()).message == "m"


HALVES = [
    b'data: {"choices":[{"delta":{"content":"otter \\ud83e"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"\\udda6!"}}]}\n\n',
]


def test_a_character_cut_into_two_escapes_is_put_together() -> None:
    answer = read(*HALVES, DONE)
    assert (answer.text, answer.fault) == ("otter 🦦!", None)
    assert all(not isinstance(chunk, TextDelta) or chunk.text.encode() for chunk in answer.chunks)


def test_half_a_character_alone_is_replaced() -> None:
    assert read(HALVES[1], DONE).text == "\N{REPLACEMENT CHARACTER}!"
    assert read(HALVES[0], delta({"content": "x"}), DONE).text == "otter \N{REPLACEMENT CHARACTER}x"


def test_numbers_that_are_no_json_do_no_harm() -> None:
    assert read(b'data: {"choices":[{"delta":{"content":"a"},"logprobs":NaN}]}\n\n', DONE).text == "a"


WHOLE = {
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "said",
                "reasoning_content": "thought",
                "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "text/plain", ""]
)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_whole_completion_is_an_answer(content_type: str, indent: int | None) -> None:
    body = json.dumps(WHOLE, indent=indent).encode()
    for pieces in (
        [body],
        [body[at : at + 1] for at in range(len(body))],
        [b"\xef\xbb\xbf" + body],
        [b"\n ", body],
    ):
        answer = read(*pieces, content_type=content_type)
        assert (answer.text, answer.reasoning, answer.called) == ("said", "thought", [("f", "{}")])
        assert (answer.finish, answer.usage, answer.ended, answer.fault) == ("tool_calls", (3, 4), True, None)


def test_a_whole_completion_that_calls_itself_a_stream() -> None:
    assert read(json.dumps(WHOLE).encode()).text == "said"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/octet-stream", ""])
def test_a_stream_that_does_not_call_itself_one(content_type: str) -> None:
    body = b": hello\n\n" + delta({"content": "a"}, "stop") + DONE
    for pieces in ([body], [body[at : at + 1] for at in range(len(body))]):
        answer = read(*pieces, content_type=content_type)
        assert (answer.text, answer.ended, answer.fault) == ("a", True, None)


@pytest.mark.parametrize(
    ("content_type", "body", "message"),
    [
        (
            "text/html",
            b"<!doctype html><title>Sign in</title>",
            "the answer is no completion; check base_url: '<!doctype html>",
        ),
        (
            "text/plain",
            b"upstream connect error",
            "the answer is no completion; check base_url: 'upstream connect error'",
        ),
        ("text/plain", b"d", "the answer is no completion; check base_url: 'd'"),
        ("application/json", b"", "the answer is no completion"),
        ("application/json", b'{"choices": [', "the answer is no JSON"),
        ("application/json", b'{"detail": "x"}', "the answer is no completion"),
        ("application/json", b"{}", "the answer is no completion"),
        ("application/json", b"[]", "the answer is no completion"),
        ("image/png", b"\x89PNG\r\n", "the answer is no completion"),
    ],
)
def test_what_is_no_answer_is_malformed(content_type: str, body: bytes, message: str) -> None:
    reader = AnswerReader(Profile(), content_type)
    reader.feed(body) if body else None
    if not reader.over:
        reader.finish()
    assert reader.fault is not None
    assert reader.fault.kind is FaultKind.MALFORMED
    assert reader.fault.message.startswith(message)
    assert len(reader.fault.message) < 300
    assert not reader.is_answer


@pytest.mark.parametrize(
    "body", [b'{"error": {"message": "m", "code": 400}}', b'[{"error": {"message": "m", "code": 400}}]']
)
def test_an_error_object_with_status_200(body: bytes) -> None:
    fault = fault_of(body, content_type="application/json")
    assert (fault.kind, fault.message, fault.status) == (FaultKind.IN_STREAM, "m", 400)


def test_a_whole_completion_over_the_limit() -> None:
    assert (
        fault_of(b'{"x": "', b"y" * 2_000, content_type="application/json", max_event_bytes=1024).type
        == "too_large"
    )


def test_inline_tags_are_flushed_before_the_reason_to_stop() -> None:
    answer = read(
        delta({"content": "a <tool_"}),
        delta({}, "stop"),
        DONE,
        inline_tool_call_tags=True,
        inline_think_tags=True,
    )
    assert answer.text == "a <tool_"
    kinds = [type(chunk).__name__ for chunk in answer.chunks]
    assert kinds == ["TextDelta", "TextDelta", "FinishReason", "EndMark"]


def test_an_unreadable_call_between_tags_is_left_for_the_judge_of_arguments() -> None:
    answer = read(delta({"content": '<tool_call>{"name": "f", "argu'}), DONE, inline_tool_call_tags=True)
    assert answer.called == [("f", '{"name": "f", "argu')]


def test_an_endless_call_between_tags_is_a_fault() -> None:
    said = [delta({"content": "x" * 500})] * 4
    fault = fault_of(
        delta({"content": "<tool_call>"}), *said, inline_tool_call_tags=True, max_event_bytes=1024
    )
    assert fault.type == "too_large"


CHUNKS = Chunk.__args__
plausible = st.sampled_from(
    [
        delta({"content": "a"}),
        DONE,
        b"data: ",
        b"\n",
        b"\r\n",
        b":",
        b"event: error\n",
        b"{",
        b'{"choices":[]}',
        b"\xf0",
    ]
)
keys = st.sampled_from(
    [
        "choices",
        "delta",
        "message",
        "index",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "usage",
        "finish_reason",
        "error",
        "code",
        "text",
        "type",
        "refusal",
        "x_groq",
        "reasoning",
        "reasoning_details",
    ]
)
leaves = (
    st.none() | st.booleans() | st.integers(-1, 600) | st.text("ab{}", max_size=3) | st.floats(allow_nan=True)
)
objects = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def run_all(pieces: list[bytes], content_type: str, tags: bool) -> None:
    profile = Profile(inline_think_tags=tags, inline_tool_call_tags=tags, max_event_bytes=1024)
    reader = AnswerReader(profile, content_type)
    chunks: list[Chunk] = []
    for piece in pieces:
        if not reader.over:
            chunks += reader.feed(piece)
    if not reader.over:
        chunks += reader.finish()
    assert reader.over
    assert all(isinstance(chunk, CHUNKS) for chunk in chunks)
    assert sum(isinstance(chunk, EndMark) for chunk in chunks) == int(reader.complete)
    assert reader.fault is None or reader.fault.message


@given(
    st.lists(st.binary(min_size=1, max_size=30) | plausible, max_size=12),
    st.sampled_from(["text/event-stream", "application/json", ""]),
    st.booleans(),
)
def test_any_bytes_become_chunks_or_a_fault(pieces: list[bytes], content_type: str, tags: bool) -> None:
    run_all(pieces, content_type, tags)


@given(st.lists(objects, min_size=1, max_size=4), st.booleans())
def test_any_json_becomes_chunks_or_a_fault(said: list[Any], tags: bool) -> None:
    run_all([event(value) for value in said], "text/event-stream", tags)
    run_all([event({"choices": [{"delta": value}]}) for value in said], "text/event-stream", tags)
    run_all(
        [event({"choices": [{"delta": {"tool_calls": value}}]}) for value in said], "text/event-stream", tags
    )
    run_all([event({"error": value}) for value in said], "text/event-stream", tags)
    run_all([json.dumps(said[0]).encode()], "application/json", tags)
