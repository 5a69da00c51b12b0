"""How an answer ends: whole, cut, empty, refused, or with tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.core.chunks import EndMark, FinishReason, TextDelta
from app.core.lifecycle.effects import Close, Finish
from app.core.lifecycle.inputs import Begin, Opened
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import NO_TIMEOUTS, LifecycleOptions, RetryOptions, TimeoutOptions
from tests.core.lifecycle.scripts import END, QUICK, RESET
from tests.support.stream_driver import StreamDriver, drive


@pytest.mark.parametrize(
    "steps",
    [
        [{"text": "4"}, {"end": None}],
        [{"text": "4"}, {"finish": "stop"}],
        [
            {"text": "4"},
            {"finish": "stop"},
            {"usage": {"input_tokens": 1, "output_tokens": 1}},
            {"end": None},
        ],
        [{"finish": "tool_calls"}, {"text": "4"}, {"end": None}],
        [{"text": "4"}, {"end": "some_word"}],
    ],
    ids=[
        "end mark alone",
        "finish reason alone",
        "usage after the reason",
        "text after the reason",
        "odd word",
    ],
)
def test_a_finish_reason_or_an_end_mark_makes_an_answer_whole(steps: list[dict[str, Any]]) -> None:
    machine, trace = drive([[steps]], QUICK)
    assert trace.code is None
    assert machine.text == "4"


def test_an_answer_that_is_cut_is_tried_again_and_never_taken_for_whole() -> None:
    machine, trace = drive([[[{"text": "mix, ba"}], [{"text": "mix, bake"}, END]]], QUICK)
    (error,) = trace.of("ERROR")
    assert (error["code"], error["recoveryStrategy"]) == ("STREAM_TRUNCATED", "retry")
    assert trace.of("RETRY_START") == [{"maxAttempts": 3, "category": "model"}]
    assert trace.of("RETRY_ATTEMPT")[0]["reason"] == "incomplete"
    assert machine.text == trace.client_text() == "mix, bake"


def test_after_the_end_mark_the_server_is_not_waited_for() -> None:
    machine = StreamMachine(QUICK, models=1, draw=lambda: 0.5)
    for item in (Begin(), Opened("openai"), TextDelta("end")):
        machine.feed(item, 0)
    effects = machine.feed(EndMark(), 1)
    assert isinstance(effects[0], Close)
    assert isinstance(effects[-1], Finish)
    assert machine.deadline_ms is None


def test_a_server_that_does_not_hang_up_after_the_finish_reason_is_left() -> None:
    options = LifecycleOptions(timeout=TimeoutOptions(inter_ms=500))
    machine, trace = drive([[[{"text": "a"}, {"finish": "stop"}, {"wait_ms": 60_000}]]], options)
    assert trace.code is None
    assert trace.closes == 1
    assert "TIMEOUT_TRIGGERED" not in trace.types()
    assert trace.seen[-1].at_ms == 500
    assert machine.finish_reason == "stop"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"end": "length"}], "OUTPUT_TRUNCATED"),
        ([{"reasoning": "hm"}, {"text": " "}, {"end": "length"}], "OUTPUT_TRUNCATED"),
        (
            [{"tool_call": {"index": 0, "name": "f", "arguments": '{"a'}}, {"end": "length"}],
            "OUTPUT_TRUNCATED",
        ),
        ([{"text": "half"}, {"end": "length"}], None),
        ([{"tool_call": {"index": 0, "name": "f"}}, {"end": "length"}], None),
        ([{"end": "content_filter"}], "CONTENT_FILTERED"),
        ([{"text": "half"}, {"end": "content_filter"}], None),
        ([{"refusal": ""}, {"refusal": "I can"}, {"refusal": "not."}, {"end": "stop"}], "MODEL_REFUSAL"),
        ([{"text": "Well"}, {"end": "refusal"}], "MODEL_REFUSAL"),
        ([{"refusal": ""}, {"text": "Well"}, {"end": "stop"}], None),
    ],
)
def test_an_answer_without_anything_usable_is_final(
    steps: list[dict[str, Any]], expected: str | None
) -> None:
    _, trace = drive([[steps], [[{"text": "never asked"}, END]]], QUICK)
    assert trace.code == expected
    assert len(trace.opens) == 1
    if expected:
        assert trace.of("ERROR")[0]["recoveryStrategy"] == "halt"
        assert "FINALIZATION_START" not in trace.types()


def test_a_refusal_is_kept_in_the_error() -> None:
    machine, trace = drive([[[{"refusal": "I can"}, {"refusal": "not."}, END]]], QUICK)
    assert trace.finish
    assert trace.finish.error
    assert trace.finish.error.detail == {"refusal": "I cannot."}
    assert machine.refusal == "I cannot."
    assert machine.text == ""


def test_what_cannot_be_stored_of_a_refusal_or_a_reason_to_stop_is_replaced() -> None:
    machine, trace = drive([[[{"refusal": "no\0\ud83d"}, {"end": "st\0p" + "x" * 500}]]], QUICK)
    assert trace.finish
    assert trace.finish.error
    assert trace.finish.error.detail == {"refusal": "no\ufffd\ufffd"}
    assert machine.finish_reason_raw == "st\ufffdp" + "x" * 196


def test_what_cannot_be_stored_of_bad_arguments_is_replaced() -> None:
    call = {"tool_call": {"index": 0, "id": "c", "name": "n", "arguments": '{"\0\ud83d": '}}
    _, trace = drive([[[call, END]]], LifecycleOptions(timeout=NO_TIMEOUTS, retry=RetryOptions(attempts=0)))
    assert trace.finish
    assert trace.finish.error
    assert trace.finish.error.detail["arguments"] == '{"\ufffd\ufffd": '


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ("", True),
        (" \n\t", True),
        ("." * 10, True),
        (" ----------\n", True),
        ("!" * 100_000, True),
        ("!" * 100_001, False),
        ("." * 9, False),
        ("ok", False),
    ],
    ids=lambda value: f"{value[:4]!r}-{len(value)}" if isinstance(value, str) else str(value),
)
def test_an_answer_without_content_is_a_fault_unless_switched_off(text: str, empty: bool) -> None:
    steps = [[{"text": text}, END]]
    _, trace = drive([steps], LifecycleOptions(timeout=NO_TIMEOUTS, retry=RetryOptions(attempts=0)))
    assert trace.code == ("ZERO_OUTPUT" if empty else None)
    _, trace = drive([steps], LifecycleOptions(timeout=NO_TIMEOUTS, detect_zero_tokens=False))
    assert trace.code is None


def test_a_tool_call_is_content() -> None:
    call = {"tool_call": {"index": 0, "id": "call_g", "name": "now", "arguments": "{}"}}
    machine, trace = drive([[[call, END]]], QUICK)
    assert trace.code is None
    assert [call.name for call in machine.tool_calls] == ["now"]
    assert trace.callbacks("on_tool_call")[0].args == ("now", "call_g", {})


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["tool_calls", "tool_calls", None], "tool_calls"),
        (["stop", "eos_odd"], "stop"),
        (["eos_odd", "stop"], "stop"),
        (["eos_odd"], None),
    ],
)
def test_a_finish_reason_is_not_hidden_by_a_word_that_is_not_known(
    reasons: list[str | None], expected: str | None
) -> None:
    machine = StreamMachine(QUICK, models=1, draw=lambda: 0.5)
    for item in (Begin(), Opened("openai"), TextDelta("a")):
        machine.feed(item, 0)
    for reason in reasons:
        if reason is not None:
            known = reason if reason in ("stop", "tool_calls") else None
            machine.feed(FinishReason(known, reason), 0)
    machine.feed(EndMark(), 0)
    assert machine.finish_reason == expected
    assert machine.finish_reason_raw == (expected or "eos_odd")


def test_calls_are_told_in_the_order_of_their_index_before_the_final_checks() -> None:
    calls = [{"tool_call": {"index": i, "name": f"f{i}", "arguments": "{}"}} for i in (1, 0)]
    machine, trace = drive([[[{"text": "x"}, *calls, {"end": "tool_calls"}]]], QUICK)
    types = trace.types()
    assert [meta["toolName"] for meta in trace.of("TOOL_REQUESTED")] == ["f0", "f1"]
    assert types.index("FINALIZATION_START") == types.index("TOOL_REQUESTED") + 2
    assert [call.index for call in machine.tool_calls] == [0, 1]


def test_ids_are_made_from_the_draws_where_the_provider_sends_none() -> None:
    draws: Iterator[float] = iter([0.25, 0.75])
    calls = [{"tool_call": {"index": i, "name": "f", "arguments": ""}} for i in (0, 1)]
    machine = StreamMachine(QUICK, models=1, draw=lambda: next(draws))
    trace = StreamDriver(machine, [[[*calls, END]]]).run()
    assert [call.id for call in machine.tool_calls] == ["call_4000000000000", "call_c000000000000"]
    assert [meta["toolCallId"] for meta in trace.of("TOOL_REQUESTED")] == [c.id for c in machine.tool_calls]


def test_malformed_arguments_are_never_told_and_tried_again() -> None:
    good = {"tool_call": {"index": 0, "id": "a", "name": "f", "arguments": "{}"}}
    bad = {"tool_call": {"index": 1, "id": "b", "name": "g", "arguments": '{"x": '}}
    machine, trace = drive([[[good, bad, {"end": "tool_calls"}], [good, {"end": "tool_calls"}]]], QUICK)
    assert trace.of("ERROR")[0]["code"] == "INVALID_TOOL_ARGUMENTS"
    assert trace.of("ERROR")[0]["failureType"] == "tool"
    assert len(trace.of("TOOL_REQUESTED")) == 1
    assert [call.id for call in machine.tool_calls] == ["a"]


def test_the_error_shows_only_the_beginning_of_bad_arguments() -> None:
    bad = {"tool_call": {"index": 0, "name": "g", "arguments": "{" + "x" * 5_000}}
    _, trace = drive([[[bad, END]]], LifecycleOptions(timeout=NO_TIMEOUTS, retry=RetryOptions(attempts=0)))
    assert trace.finish
    assert trace.finish.error
    assert len(trace.finish.error.detail["arguments"]) == 1_000


def test_half_a_call_of_a_lost_attempt_leaves_nothing_behind() -> None:
    half = {"tool_call": {"index": 0, "id": "call_p", "name": "book", "arguments": '{"room": "A", "ni'}}
    whole = {"tool_call": {"index": 0, "id": "call_f", "name": "book", "arguments": '{"room": "A"}'}}
    machine, trace = drive(
        [[[{"text": "Booking. "}, half, RESET]], [[whole, {"end": "tool_calls"}]]],
        LifecycleOptions(timeout=NO_TIMEOUTS, retry=RetryOptions(max_retries=0)),
    )
    assert [(call.id, call.arguments) for call in machine.tool_calls] == [("call_f", {"room": "A"})]
    assert len(trace.callbacks("on_tool_call")) == 1
    assert machine.text == trace.client_text() == ""
