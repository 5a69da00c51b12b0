"""What the lines of a command say, in whatever pieces they come."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.command_model.command import Command
from app.adapters.command_model.output import OBSERVED_CHARS, OutputReader
from app.core.chunks import (
    Chunk,
    EndMark,
    FinishReason,
    KeepAlive,
    MessageBreak,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolOutcome,
    ToolUse,
    UsageReport,
)
from app.core.faults import FaultKind
from tests.support.commands import settings

SECRET = "sk-very-secret"


def reader(**more: Any) -> OutputReader:
    """A reader of our own lines."""
    return OutputReader(Command(settings("x", **more), ("x",), {}, (SECRET,)))


def lines(*said: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in said)


def heard(of: OutputReader, *pieces: bytes, finish: bool = False) -> list[Chunk]:
    """What the pieces say, signs of life left out."""
    chunks = [chunk for piece in pieces if not of.over for chunk in of.feed(piece)]
    if finish and not of.over:
        chunks += of.finish()
    return [chunk for chunk in chunks if not isinstance(chunk, KeepAlive)]


KINDS: list[tuple[dict[str, Any], list[Chunk]]] = [
    ({"type": "text", "text": "a"}, [TextDelta("a")]),
    ({"type": "text", "text": ""}, []),
    ({"type": "text", "text": 7}, []),
    ({"type": "text"}, []),
    ({"type": "reasoning", "text": "hm"}, [ReasoningDelta("hm")]),
    ({"type": "refusal", "text": "no"}, [RefusalDelta("no")]),
    ({"type": "message"}, [MessageBreak()]),
    (
        {"type": "tool_use", "id": "t", "name": "ls", "arguments": {"a": [1]}},
        [ToolUse("t", "ls", {"a": [1]})],
    ),
    ({"type": "tool_use"}, [ToolUse("", "", None)]),
    ({"type": "tool_result", "id": "t", "output": "x"}, [ToolOutcome("t", "x", False)]),
    (
        {"type": "tool_result", "id": "t", "output": None, "is_error": True},
        [ToolOutcome("t", None, True)],
    ),
    ({"type": "usage", "input_tokens": 3, "output_tokens": 4}, [UsageReport(3, 4)]),
    ({"type": "usage", "output_tokens": 4}, [UsageReport(0, 4)]),
    (
        {
            **{"type": "usage", "input_tokens": 9, "output_tokens": 4, "cached_input_tokens": 2},
            **{"cache_write_tokens": 3, "reasoning_tokens": 1},
        },
        [UsageReport(9, 4, 2, 3, 1)],
    ),
    (
        {"type": "usage", "output_tokens": 4, "reasoning_tokens": "1", "cached_input_tokens": None},
        [UsageReport(0, 4)],
    ),
    ({"type": "usage", "cached_input_tokens": 2}, []),
    ({"type": "usage", "input_tokens": -1}, []),
    ({"type": "usage", "input_tokens": True}, []),
    ({"type": "end", "reason": "stop"}, [FinishReason("stop", "stop"), EndMark()]),
    ({"type": "end", "reason": "max_tokens"}, [FinishReason("length", "max_tokens"), EndMark()]),
    ({"type": "end", "reason": "tired"}, [FinishReason(None, "tired"), EndMark()]),
    ({"type": "end"}, [EndMark()]),
    ({"type": "of tomorrow", "text": "a"}, []),
    ({"type": ["text"], "text": "a"}, []),
    ({}, []),
]


@pytest.mark.parametrize(("line", "chunks"), KINDS)
def test_what_a_line_says(line: dict[str, Any], chunks: list[Chunk]) -> None:
    of = reader()
    assert heard(of, lines(line)) == chunks
    assert of.is_answer
    assert of.fault is None


def test_calls_are_counted_and_keep_every_digit() -> None:
    of = reader(native_tools=True)
    big = 12345678901234567890123
    call = {"type": "tool_call", "id": "c", "name": "add", "arguments": {"a": big}}
    first, second = heard(of, lines(call, {**call, "arguments": '{"b": 1}'}))
    assert first == ToolCallDelta(0, "c", "add", f'{{"a":{big}}}')
    assert second == ToolCallDelta(1, "c", "add", '{"b": 1}')


def test_calls_are_a_fault_where_nobody_asked_for_them() -> None:
    of = reader()
    heard(of, lines({"type": "tool_call", "id": "c", "name": "add"}))
    assert of.fault is not None
    assert of.fault.kind is FaultKind.MALFORMED
    assert "native_tools" in of.fault.message


ALL = [line for line, _ in KINDS if line.get("type") != "end"]
WHOLE = lines(*ALL, {"type": "text", "text": "ünï 🦦"}, {"type": "end", "reason": "stop"})


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_how_it_is_cut_does_not_matter(cuts: list[int]) -> None:
    at = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[start:end] for start, end in pairwise(at)]
    of = reader()
    assert heard(of, *pieces) == heard(reader(), WHOLE)
    assert of.complete


@given(st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_are_read_or_are_a_fault(raw: bytes, cut: int) -> None:
    of = reader(max_line_bytes=1_024)
    heard(of, raw[:cut], raw[cut:], finish=True)
    assert of.over
    assert of.fault is None or of.fault.kind in (
        FaultKind.MALFORMED,
        FaultKind.IN_STREAM,
        FaultKind.STATUS,
    )


def test_nothing_after_the_end_is_read() -> None:
    of = reader()
    said = heard(of, lines({"type": "end"}, {"type": "text", "text": "late"}) + b"garbage\n")
    assert said == [EndMark()]
    assert (of.over, of.complete, of.fault) == (True, True, None)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (b'{"type": "text", "text": "a"}', [TextDelta("a")]),
        (b'{"type": "text", "te', []),
        (b"", []),
        (b"Killed", []),
        (b'{"type": "end"}', [EndMark()]),
    ],
    ids=["whole", "cut", "none", "words", "end"],
)
def test_a_last_line_without_its_end(last: bytes, said: list[Chunk]) -> None:
    of = reader()
    assert heard(of, last, finish=True) == said
    assert (of.over, of.fault) == (True, None)


@pytest.mark.parametrize("stray", [b"hello", b"[1]", b'"a"', b"null", b"{", b"\xff\xfe", b"[" * 5_000])
def test_a_stray_line_is_a_fault_or_skipped(stray: bytes) -> None:
    of = reader()
    heard(of, stray + b"\n")
    assert of.fault is not None
    assert of.fault.kind is FaultKind.MALFORMED
    lenient = reader(skip_stray_lines=True)
    assert heard(lenient, stray + b"\n", lines({"type": "text", "text": "a"})) == [TextDelta("a")]


def test_blank_lines_carriage_returns_and_a_mark_do_no_harm() -> None:
    raw = b'\xef\xbb\xbf{"type": "text", "text": "a"}\r\n\r\n\n  \n{"type": "end"}\r\n'
    assert heard(reader(), raw) == [TextDelta("a"), EndMark()]


def test_bad_bytes_inside_a_text_are_replaced() -> None:
    assert heard(reader(), b'{"type": "text", "text": "a\xff"}\n') == [TextDelta("a\ufffd")]


def test_halves_of_a_character_are_joined() -> None:
    raw = b'{"type": "text", "text": "a\\ud83e"}\n{"type": "text", "text": "\\udda6b"}\n'
    assert heard(reader(), raw) == [TextDelta("a"), TextDelta("🦦b")]


@pytest.mark.parametrize("end", [b"\n", b""], ids=["ended", "not ended"])
def test_a_giant_line_is_a_fault_before_it_is_all_there(end: bytes) -> None:
    of = reader(max_line_bytes=1_024)
    heard(of, b'{"type": "text", "text": "', b"a" * 1_024 + end)
    assert of.fault is not None
    assert (of.fault.kind, of.fault.type) == (FaultKind.MALFORMED, "too_large")


def test_an_error_first_is_a_refusal_and_later_one_of_the_stream() -> None:
    error = {"type": "error", "message": "slow down", "status": 429, "code": "busy", "retry_after_ms": 70}
    of = reader()
    heard(of, lines(error))
    assert of.fault is not None
    assert (of.is_answer, of.fault.kind, of.fault.status) == (False, FaultKind.STATUS, 429)
    assert (of.fault.message, of.fault.provider_code) == ("slow down", "busy")
    assert of.fault.retry_after_ms == 70
    later = reader()
    assert heard(later, lines({"type": "text", "text": "a"}, error)) == [TextDelta("a")]
    assert later.fault is not None
    assert later.fault.kind is FaultKind.IN_STREAM


def test_a_complaint_is_not_the_end() -> None:
    of = reader()
    said = heard(of, lines({"type": "complaint", "message": "again"}, {"type": "text", "text": "a"}))
    assert said == [TextDelta("a")]
    assert (of.fault, of.over) == (None, False)
    assert of.complaint is not None
    assert of.complaint.message == "again"


def test_secrets_are_masked_in_what_is_observed_and_in_faults() -> None:
    of = reader()
    key = {f"key {SECRET}": SECRET}
    use, outcome = heard(
        of,
        lines(
            {"type": "tool_use", "id": SECRET, "name": SECRET, "arguments": key},
            {"type": "tool_result", "id": "t", "output": f"KEY={SECRET}"},
            {"type": "error", "message": f"bad key {SECRET}", "more": SECRET},
        ),
    )
    stray = reader()
    heard(stray, f"export KEY={SECRET}\n".encode())
    assert SECRET not in repr((use, outcome, of.fault, stray.fault))
    assert outcome == ToolOutcome("t", "KEY=[redacted]", False)


def test_secrets_are_masked_in_the_reason_to_stop() -> None:
    assert heard(reader(), lines({"type": "end", "reason": f"no {SECRET}"})) == [
        FinishReason(None, "no [redacted]"),
        EndMark(),
    ]


def test_what_is_observed_is_bounded_and_can_be_stored() -> None:
    long = ["x" * 100] * 1_000
    outcome = {"type": "tool_result", "id": "t" * 1_000, "output": long}
    (cut,) = heard(reader(), lines(outcome))
    assert isinstance(cut, ToolOutcome)
    assert isinstance(cut.output, str)
    assert (len(cut.output), len(cut.id)) == (OBSERVED_CHARS, 200)
    (half,) = heard(reader(), b'{"type": "tool_result", "id": "t", "output": "\\ud800\\u0000"}\n')
    assert half == ToolOutcome("t", "\ufffd\ufffd", False)


@pytest.mark.parametrize("type", ["tool_use", "tool_result", "tool_call", "error", "complaint", "usage"])
@pytest.mark.parametrize("depth", [90, 900, 1_020, 5_000])
def test_deep_values_are_told_or_are_a_fault(type: str, depth: int) -> None:
    of = reader(native_tools=True)
    nested = "[" * depth + "]" * depth
    heard(of, f'{{"type": "{type}", "arguments": {nested}, "output": {nested}}}\n'.encode())
    assert of.fault is None or of.fault.kind in (FaultKind.MALFORMED, FaultKind.IN_STREAM)
