"""Answers that the provider interrupts itself, and what it wants back of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.chunks import UsageReport
from app.core.lifecycle.effects import AttemptEnded
from app.core.lifecycle.options import ContinuationOptions, RetryOptions
from app.core.opaque import OpaqueBlock, PausedTurn
from tests.core.lifecycle.scripts import DENIED, END, QUICK, RESET, Steps
from tests.support.stream_driver import drive

PAUSE = {"end": "paused"}
CALL = {"tool_call": {"index": 0, "id": "c", "name": "add", "arguments": "{}"}}


def block(name: str, at: int = 0) -> dict[str, object]:
    return {"opaque": [{"json": name, "at": at}]}


def test_the_answer_goes_on_in_the_same_attempt_and_its_text_stands() -> None:
    said: Steps = [{"text": "one "}, block("<a>", 4), PAUSE]
    rest: Steps = [{"text": "two"}, block("<b>", 1), END]
    machine, trace = drive([[said, rest]], QUICK)
    assert (machine.text, trace.client_text(), trace.code) == ("one two", "one two", None)
    assert (machine.attempt, machine.openings, machine.finish_reason) == (1, 2, "stop")
    assert trace.opens[1].paused == PausedTurn("one ", (OpaqueBlock("<a>", 4),))
    assert machine.opaque == (OpaqueBlock("<a>", 4), OpaqueBlock("<b>", 5))
    assert machine.budget.left == 18


def test_usage_of_both_calls_is_told_once_each() -> None:
    usages: list[Steps] = [
        [
            {"usage": {"input_tokens": 1, "output_tokens": 1}},
            {"text": "a"},
            {"usage": {"input_tokens": 10, "output_tokens": 2}},
            PAUSE,
        ],
        [
            {"usage": {"input_tokens": 20, "output_tokens": 0}},
            {"text": "b"},
            {"usage": {"input_tokens": 20, "output_tokens": 3}},
            END,
        ],
    ]
    first, second = drive([usages], QUICK)[1].attempts
    assert first == AttemptEnded("paused", None, UsageReport(10, 2), whole=True, heard=0)
    assert second == AttemptEnded("completed", None, UsageReport(20, 3), whole=True, heard=0)


def test_each_call_tells_of_what_was_said_in_it_alone() -> None:
    used: Steps = [{"usage": {"input_tokens": 10, "output_tokens": 2}}]
    said: Steps = [{"reasoning": "hm"}, {"text": "one "}, *used, block("<a>"), PAUSE]
    cut: Steps = [{"reasoning": "so"}, {"text": "two"}, RESET]
    first, second = drive([[said, cut]], replace(QUICK, retry=RetryOptions(0, 0)))[1].attempts
    assert first == AttemptEnded("paused", None, UsageReport(10, 2), whole=True, heard=0)
    assert second == AttemptEnded("failed", "NETWORK_ERROR", None, whole=False, heard=5)
    unsaid: Steps = [step for step in said if step not in used]
    assert [end.heard for end in drive([[unsaid, [{"text": "two"}, END]]], QUICK)[1].attempts] == [6, 3]


def test_a_call_after_a_pause_can_be_refused() -> None:
    once = replace(QUICK, retry=RetryOptions(0, 0))
    _, second = drive([[[{"text": "one "}, PAUSE], [DENIED]]], once)[1].attempts
    assert (second.outcome, second.refused, second.report, second.heard) == ("failed", True, None, 0)


def test_what_is_kept_of_an_answer_is_nothing_that_its_report_missed() -> None:
    used = {"usage": {"input_tokens": 10, "output_tokens": 2}}
    (kept,) = drive([[[{"text": "a"}, used, block("<a>"), END]]], QUICK)[1].attempts
    assert (kept.whole, kept.heard) == (True, 0)
    (begun,) = drive([[[{"text": "a"}, used, {"opaque": []}, END]]], QUICK)[1].attempts
    assert not begun.whole


def test_it_is_cut_where_no_model_call_is_left() -> None:
    machine, trace = drive([[[{"text": "a"}, block("<a>"), PAUSE]]], QUICK, calls_left=3)
    assert (machine.text, machine.openings, trace.code) == ("aaa", 3, None)
    assert (machine.finish_reason, machine.finish_reason_raw) == ("length", "paused")
    assert machine.opaque == (), "a provider would look for the rest of it"


@pytest.mark.parametrize(
    "said",
    [[{"text": "a"}, CALL, PAUSE], [PAUSE], [{"reasoning": "hm"}, PAUSE]],
    ids=["calls", "nothing", "thoughts"],
)
def test_what_cannot_be_given_back_is_an_end(said: Steps) -> None:
    machine, trace = drive([[said]], replace(QUICK, retry=RetryOptions(0, 0)))
    assert machine.openings == 1
    assert "TURN_PAUSED" not in trace.types()


def test_a_pause_that_brings_nothing_new_is_an_end() -> None:
    machine, trace = drive([[[{"text": "a"}, block("<a>"), PAUSE], [PAUSE]]], QUICK)
    assert (machine.text, machine.openings, trace.code, machine.finish_reason) == ("a", 2, None, "length")


def test_more_than_is_kept_cannot_be_given_back() -> None:
    half: Steps = [{"text": "a"}, block("x" * 300_000), PAUSE]
    machine, trace = drive([[half]], QUICK)
    assert (machine.openings, machine.finish_reason, machine.opaque, trace.code) == (2, "length", (), None)


def test_a_failure_after_the_pause_makes_all_of_it_void() -> None:
    attempts: list[Steps] = [
        [{"text": "a"}, block("<a>"), PAUSE],
        [{"text": "b"}, RESET],
        [{"text": "c"}, END],
    ]
    machine, trace = drive([attempts], QUICK)
    assert (machine.text, trace.client_text(), machine.attempt) == ("c", "c", 2)
    assert trace.of("ATTEMPT_START")[0]["contentOffset"] == 0
    assert (machine.opaque, trace.opens[-1].paused) == ((), None)


def test_an_answer_of_two_attempts_has_nothing_to_be_given_back() -> None:
    options = replace(QUICK, continuation=ContinuationOptions(checkpoint_every=1))
    cut: Steps = [{"text": "the tide "}, RESET]
    rest: Steps = [block("<a>"), {"text": "comes in"}, END]
    machine, _ = drive([[cut, rest]], options)
    assert (machine.text, machine.opaque) == ("the tide comes in", ())


@pytest.mark.parametrize(("reason", "kept"), [("stop", 1), ("tool_calls", 1), ("length", 0), ("odd", 0)])
def test_only_a_whole_answer_has(reason: str, kept: int) -> None:
    machine, _ = drive([[[{"text": "a"}, block("<a>"), {"end": reason}]]], QUICK)
    assert len(machine.opaque) == kept
