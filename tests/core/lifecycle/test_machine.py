"""The figures of a session, and inputs at odd times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.core.chunks import EndMark, KeepAlive, TextDelta, UsageReport
from app.core.events.base import TextRef
from app.core.events.session import Token
from app.core.faults import Fault, FaultKind
from app.core.guardrails.base import CalledRule, Check, Rule, Tail, Violation
from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.effects import AttemptEnded, Close, Open, Position
from app.core.lifecycle.inputs import Abort, Answer, Begin, Closed, Failed, Opened, Tick
from app.core.lifecycle.machine import StreamMachine, UnexpectedInput
from app.core.lifecycle.options import NO_RETRIES, ContinuationOptions, LifecycleOptions, RetryOptions
from app.core.lifecycle.table import State
from tests.core.lifecycle.scripts import DENIED, END, QUICK, RESET
from tests.support.stream_driver import Scripts, StreamDriver, drive


def test_lengths_count_code_points() -> None:
    machine, trace = drive([[[{"text": "naïve 🦦"}, {"text": ""}, {"text": "日本"}, END]]], QUICK)
    assert machine.token_count == len(trace.of("TOKEN")) == 2
    complete = trace.of("COMPLETE")[0]
    assert (complete["tokenCount"], complete["contentLength"]) == (2, 9)


def test_on_complete_is_given_the_state() -> None:
    _, trace = drive([[[{"text": "a"}, RESET], [{"text": "b"}], [{"text": "ok"}, END]]], QUICK)
    assert trace.callbacks("on_complete")[0].args == (
        {
            "content": TextRef(2),
            "tokenCount": 1,
            "checkpoint": "",
            "modelRetryCount": 1,
            "networkRetryCount": 1,
            "fallbackIndex": 0,
        },
    )


def test_usage_is_replaced_within_an_attempt_and_told_for_each() -> None:
    def usage(output: int) -> dict[str, Any]:
        return {"usage": {"input_tokens": 100, "output_tokens": output}}

    _, trace = drive([[[usage(1), {"text": "a"}, usage(40), RESET], [usage(60), {"text": "b"}, END]]], QUICK)
    assert [attempt.report for attempt in trace.attempts] == [UsageReport(100, 40), UsageReport(100, 60)]


def test_the_summary_covers_the_whole_session() -> None:
    machine = StreamMachine(LifecycleOptions(), models=2, draw=lambda: 0.0)
    scripts: Scripts = [[[RESET], [DENIED]], [[{"wait_ms": 100}, {"text": "a"}, END]]]
    trace = StreamDriver(machine, scripts, start_ms=1_700_000_000_000.0).run()
    assert trace.of("SESSION_SUMMARY") == [
        {
            "duration": 600,
            "tokenCount": 1,
            "startTs": 1_700_000_000_000,
            "endTs": 1_700_000_000_600,
            "driftDetected": False,
            "guardrailViolations": 0,
            "fallbackDepth": 1,
            "retryCount": 1,
            "checkpointsCreated": 0,
        }
    ]


def test_reasoning_is_kept_apart_from_the_answer() -> None:
    machine, trace = drive([[[{"reasoning": "Sum "}, {"reasoning": "it."}, {"text": "4"}, END]]], QUICK)
    assert (machine.reasoning, machine.text) == ("Sum it.", "4")
    assert len(trace.of("TOKEN")) == 1


@pytest.mark.parametrize("purpose", ["main", "repair", "voter"])
def test_a_session_says_what_it_is_for(purpose: Any) -> None:
    machine = StreamMachine(QUICK, models=1, draw=lambda: 0.5, purpose=purpose)
    trace = StreamDriver(machine, [[[{"text": "a"}, END]]]).run()
    assert trace.of("SESSION_START")[0]["purpose"] == purpose


def test_events_belong_to_the_position_that_precedes_them() -> None:
    _, trace = drive([[[RESET], [DENIED]], [[{"text": "a"}, END]]], QUICK)
    places = [(entry.event.type, entry.attempt, entry.fallback_index) for entry in trace.seen]
    assert places[0] == ("SESSION_START", 1, 0)
    assert ("RETRY_ATTEMPT", 1, 0) in places
    assert ("ATTEMPT_START", 2, 0) in places
    assert ("FALLBACK_START", 1, 1) in places
    assert places[-1] == ("SESSION_SUMMARY", 1, 1)


def test_what_is_left_of_a_closed_attempt_is_ignored() -> None:
    machine = StreamMachine(QUICK, models=1, draw=lambda: 0.5)
    for item in (Begin(), Opened("openai")):
        machine.feed(item, 0)
    effects = machine.feed(EndMark(), 0)
    assert [type(effect) for effect in effects if not hasattr(effect, "meta")] == [
        Close,
        AttemptEnded,
        Position,
        Open,
    ]
    for stale in (TextDelta("stale"), KeepAlive(), EndMark(), Closed()):
        assert machine.feed(stale, 1) == []
    machine.feed(Opened("openai"), 2)
    assert machine.feed(TextDelta("fresh"), 3) == [Token("fresh")]
    assert machine.text == "fresh"


def test_an_ended_session_ignores_everything() -> None:
    machine, trace = drive([[[{"text": "a"}, END]]], QUICK)
    fault = Fault(FaultKind.NETWORK, "late")
    for late in (Abort("user"), Tick(), TextDelta("late"), Failed(fault), Closed(), Opened("openai")):
        assert machine.feed(late, 10**6) == []
    assert machine.state is State.COMPLETE
    assert machine.text == trace.client_text() == "a"


def test_a_tick_before_its_time_does_nothing() -> None:
    machine = StreamMachine(LifecycleOptions(), models=1, draw=lambda: 0.5)
    machine.feed(Begin(), 0)
    assert machine.deadline_ms == 5_000
    assert machine.feed(Tick(), 4_999) == []


@pytest.mark.parametrize("first", [TextDelta("a"), Opened("openai"), Abort("user"), Tick(), Closed()])
def test_nothing_comes_before_the_beginning(first: Any) -> None:
    machine = StreamMachine(QUICK, models=1, draw=lambda: 0.5)
    with pytest.raises(UnexpectedInput):
        machine.feed(first, 0)
    assert machine.state is State.INIT


@pytest.mark.parametrize("second", [Begin(), Opened("openai"), Answer()])
def test_an_input_that_cannot_come_now_is_refused(second: Any) -> None:
    machine = StreamMachine(QUICK, models=1, draw=lambda: 0.5)
    machine.feed(Begin(), 0)
    machine.feed(Opened("openai"), 0)
    with pytest.raises(UnexpectedInput):
        machine.feed(second, 0)
    assert machine.feed(TextDelta("a"), 1) == [Token("a")]


CONTINUED = ContinuationOptions(checkpoint_every=1)


def test_a_fallback_ends_once_also_when_its_checkpoint_is_being_judged() -> None:
    options = LifecycleOptions(
        retry=NO_RETRIES, continuation=CONTINUED, guardrails=(CalledRule("outside", streaming=True),)
    )
    broken = [[{"text": "a"}, RESET]]
    answers = iter([Answer([]), None])
    _, trace = drive([broken] * 3, options, decide=lambda ask: next(answers))
    assert trace.types().count("FALLBACK_END") == trace.types().count("FALLBACK_START") == 1


class Late(Rule):
    """Finds something behind the end of every text that does not end well."""

    name = "late"
    streaming = False

    def start(self) -> Check:
        return LateCheck(self)


class LateCheck(Check):
    def __init__(self, rule: Late) -> None:
        self.rule = rule

    def tail(self, tail: Tail) -> Sequence[Violation]:
        return ()

    def end(self, text: str) -> Sequence[Violation]:
        return () if text.endswith("!") else [self.rule.found("no end", len(text))]


def test_rejected_text_is_never_gone_on_from_as_a_whole() -> None:
    options = LifecycleOptions(retry=QUICK.retry, continuation=CONTINUED, guardrails=(Late(),))
    machine, trace = drive([[[{"text": "a"}, {"text": "b"}, END], [{"text": "c!"}, END]]], options)
    assert [opening.continue_from for opening in trace.opens] == ["", "a"]
    assert machine.text == "ac!"


def test_what_one_model_refused_the_next_is_still_asked_for() -> None:
    refused = {"error": {"kind": "status", "status": 400}}
    options = LifecycleOptions(
        retry=RetryOptions(max_retries=2, base_delay_ms=0, max_delay_ms=0), continuation=CONTINUED
    )
    first = [[{"text": "a "}, RESET], [refused], [{"text": "a "}, RESET]]
    _, trace = drive([first, [[{"text": "b"}, END]]], options)
    assert [opening.continue_from for opening in trace.opens] == ["", "a ", "", "a "]


def test_the_callers_pause_is_no_shorter_than_the_servers() -> None:
    options = LifecycleOptions(retry=RetryOptions(calculate_delay="asked"))
    busy = {"error": {"kind": "status", "status": 429, "retry_after_ms": 20_000}}
    _, trace = drive([[[busy], [{"text": "a"}, END]]], options, decide=lambda ask: Answer(5))
    assert [event["delayMs"] for event in trace.of("RETRY_ATTEMPT")] == [20_000]


@pytest.mark.parametrize(
    "answer",
    [
        Answer("soon"),
        Answer(True),
        Answer(-1),
        Answer(float("nan")),
        Answer(None),
        Answer(error="no such key"),
    ],
    ids=lambda answer: str(answer.error or answer.value),
)
def test_an_expression_that_gives_no_pause_is_told_and_leaves_it_to_the_strategy(answer: Answer) -> None:
    options = LifecycleOptions(
        retry=RetryOptions(calculate_delay="asked", strategy=Strategy.FIXED, base_delay_ms=7, max_delay_ms=9)
    )
    _, trace = drive([[[RESET], [{"text": "a"}, END]]], options, decide=lambda ask: answer)
    (told,) = trace.of("RETRY_FN_ERROR")
    assert told["error"].startswith("calculate_delay: ")
    assert told["finalShouldRetry"] is True
    assert [event["delayMs"] for event in trace.of("RETRY_ATTEMPT")] == [7]
