"""How the machine tells that an attempt is over: once for each, with what is known of its tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.core.chunks import UsageReport
from app.core.guardrails.base import CalledRule
from app.core.lifecycle.effects import Ask, AttemptEnded
from app.core.lifecycle.inputs import Abort, Answer, Begin, Opened
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import ContinuationOptions, TimeoutOptions
from tests.core.lifecycle.scripts import DENIED, END, QUICK, RESET
from tests.support.stream_driver import Scripts, drive

USED: dict[str, Any] = {"usage": {"input_tokens": 9, "output_tokens": 4}}
REPORT = UsageReport(9, 4)
HELLO: dict[str, Any] = {"text": "hello"}
CALL: dict[str, Any] = {"tool_call": {"index": 0, "name": "add", "arguments": '{"a":1}'}}


def ends(scripts: Scripts, **how: Any) -> list[AttemptEnded]:
    """Every attempt of a session."""
    options = how.pop("options", QUICK)
    return drive(scripts, options, **how)[1].attempts


@pytest.mark.parametrize(
    ("steps", "whole", "heard"),
    [
        ([HELLO, USED, END], True, 0),
        ([HELLO, {"finish": "stop"}, USED, {"end": None}], True, 0),
        ([HELLO, HELLO, HELLO, USED, {"end": None}], True, 0),
        ([{"usage": {"input_tokens": 9, "output_tokens": 1}}, HELLO, END], False, 5),
        ([USED, HELLO, USED, HELLO, END], False, 10),
        ([HELLO, USED, {"reasoning": "hm"}, END], False, 7),
        ([HELLO, USED, {"keep_alive": ""}, END], True, 0),
        ([HELLO, END], False, 5),
        ([CALL, USED, {"end": "tool_calls"}], True, 0),
        ([USED, CALL, {"end": "tool_calls"}], False, 10),
        ([HELLO, {"usage": {"input_tokens": 9, "output_tokens": 0}}, END], True, 5),
    ],
    ids=[
        "a report before the end",
        "between reason and end mark",
        "after plain tokens",
        "a report that came too early",
        "one of several, and more text",
        "reasoning after it",
        "a heartbeat after it",
        "no report",
        "a tool call",
        "a tool call after it",
        "a report of nothing",
    ],
)
def test_a_report_is_whole_when_nothing_was_said_after_it(
    steps: list[dict[str, Any]], whole: bool, heard: int
) -> None:
    (end,) = ends([[steps]])
    assert (end.outcome, end.code, end.whole, end.heard) == ("completed", None, whole, heard)


def test_an_answer_that_broke_off_has_no_whole_report() -> None:
    first, second = ends([[[HELLO, USED, RESET], [HELLO, USED, END]]])
    assert first == AttemptEnded("failed", "NETWORK_ERROR", REPORT, whole=False, heard=5)
    assert second == AttemptEnded("completed", None, REPORT, whole=True, heard=0)


def test_an_answer_that_was_rejected_as_a_whole_keeps_its_report() -> None:
    first, _ = ends([[[{"text": "   "}, USED, END], [HELLO, END]]])
    assert (first.outcome, first.code, first.report, first.whole) == ("failed", "ZERO_OUTPUT", REPORT, True)


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (DENIED, "PROVIDER_ERROR"),
        (RESET, "NETWORK_ERROR"),
        ({"error": {"kind": "status", "status": 429}}, "RATE_LIMITED"),
    ],
)
def test_what_never_began_was_refused(step: dict[str, Any], code: str) -> None:
    first, second = ends(
        [[[step]] * 1, [[HELLO, END]]], options=replace(QUICK, retry=replace(QUICK.retry, max_retries=0))
    )
    assert first == AttemptEnded("failed", code, None, whole=False, heard=0, refused=True)
    assert second.outcome == "completed"


def test_a_server_that_does_not_answer_in_time_has_not_refused() -> None:
    options = replace(
        QUICK,
        timeout=TimeoutOptions(initial_ms=50, inter_ms=50),
        retry=replace(QUICK.retry, max_retries=0),
    )
    (end,) = ends([[[{"open_wait_ms": 100}, HELLO, END]]], options=options)
    assert (end.outcome, end.code, end.refused) == ("failed", "INITIAL_TOKEN_TIMEOUT", False)


def test_an_abort_ends_the_attempt_that_runs() -> None:
    (end,) = ends([[[HELLO, HELLO, {"wait_ms": 1_000}, END]]], abort_after_tokens=2)
    assert end == AttemptEnded("aborted", "STREAM_ABORTED", None, whole=False, heard=10)


def test_an_abort_between_attempts_ends_none_twice() -> None:
    slow = replace(QUICK, retry=replace(QUICK.retry, base_delay_ms=1_000))
    (end,) = ends([[[HELLO, RESET]]], options=slow, abort_at_ms=10.0)
    assert (end.outcome, end.code) == ("failed", "NETWORK_ERROR")


def test_an_attempt_is_over_before_anybody_is_asked_what_follows() -> None:
    asking = replace(QUICK, retry=replace(QUICK.retry, should_retry="false"))
    (end,) = ends([[[HELLO, RESET]]], options=asking, decide=lambda _: None)
    assert (end.outcome, end.code) == ("failed", "NETWORK_ERROR")


def test_who_is_asked_is_told_the_status_of_the_answer_and_no_word_of_the_servers() -> None:
    asked: list[Any] = []

    def decide(ask: Ask) -> Answer:
        asked.append(ask.question["error"]["status"])
        return Answer(value=True)

    asking = replace(QUICK, retry=replace(QUICK.retry, should_retry="true"))
    busy = {"kind": "status", "status": 503, "detail": {"status": "UNAVAILABLE"}}
    told = {"kind": "in_stream", "type": "overloaded_error", "detail": {"status": "UNAVAILABLE"}}
    ends([[[{"error": busy}], [HELLO, {"error": told}], [HELLO, END]]], options=asking, decide=decide)
    assert asked == [503, None]


def test_an_abort_while_the_answer_is_judged_ends_its_attempt() -> None:
    rule = CalledRule("asked")
    (end,) = ends([[[HELLO, USED, END]]], options=replace(QUICK, guardrails=(rule,)), decide=lambda _: None)
    assert (end.outcome, end.report, end.whole) == ("aborted", REPORT, True)


def test_a_session_that_may_ask_nobody_has_no_attempt() -> None:
    assert ends([[[HELLO, END]]], calls_left=0) == []


def test_what_a_resumed_attempt_says_is_what_it_said_itself() -> None:
    options = replace(QUICK, continuation=ContinuationOptions())
    first, second = ends(
        [[[{"text": "one two three "}, RESET], [{"text": "two three four"}, END]]], options=options
    )
    assert (first.heard, second.heard) == (14, 14)


@pytest.mark.parametrize("said", ["two three ", "two"])
def test_a_report_counts_text_that_is_held_back_when_it_comes(said: str) -> None:
    options = replace(QUICK, continuation=ContinuationOptions())
    _, counted = ends([[[{"text": "one two three "}, RESET], [{"text": said}, USED, END]]], options=options)
    assert (counted.whole, counted.report) == (True, REPORT)


def test_text_that_was_held_back_when_the_answer_broke_off_was_said_too() -> None:
    options = replace(QUICK, continuation=ContinuationOptions(), retry=replace(QUICK.retry, max_retries=1))
    _, second = ends([[[{"text": "one two three "}, RESET], [{"text": "two thr"}, RESET]]], options=options)
    assert second.heard == 7


def test_an_abort_before_the_answer_began_is_no_refusal() -> None:
    machine = StreamMachine(QUICK, models=1, draw=lambda: 0.5)
    machine.feed(Begin(), 0)
    effects = machine.feed(Abort("user"), 1)
    (end,) = [effect for effect in effects if isinstance(effect, AttemptEnded)]
    assert (end.outcome, end.refused) == ("aborted", False)
    assert machine.feed(Opened("openai"), 2) == []
