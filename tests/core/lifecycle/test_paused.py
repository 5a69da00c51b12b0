"""Answers that the provider interrupts itself, and what it wants back of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.lifecycle.options import ContinuationOptions, RetryOptions
from app.core.opaque import OpaqueBlock, PausedTurn
from tests.core.lifecycle.scripts import END, QUICK, RESET, Steps
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


def test_usage_of_both_calls_counts_once_each() -> None:
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
    machine, _ = drive([usages], QUICK)
    assert machine.usage is not None
    assert (machine.usage.input_tokens, machine.usage.output_tokens) == (30, 5)


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
