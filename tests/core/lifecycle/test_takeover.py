"""A session whose process is lost at any moment is gone on with from its log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events.base import Event
from app.core.lifecycle.budget import Budget
from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.effects import Finish, Position
from app.core.lifecycle.inputs import TakeOver
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import ContinuationOptions, LifecycleOptions, RetryOptions, TimeoutOptions
from app.core.lifecycle.replay import Replay
from app.core.lifecycle.table import State
from tests.core.lifecycle.test_properties import TapedMachine, World, worlds
from tests.support.invariants import assert_log
from tests.support.stream_driver import Seen, StreamDriver, Trace

RESET: dict[str, Any] = {"error": {"kind": "network", "type": "connection_reset"}}
TALK: list[dict[str, Any]] = [{"text": "One, "}, {"text": "two, "}, {"wait_ms": 1}, {"text": "three"}]
REST = [{"text": "and three."}, {"end": "stop"}]
NO_LIMITS = TimeoutOptions(initial_ms=None, inter_ms=None)
BEGAN_MS = 10_000
SLOWLY = RetryOptions(base_delay_ms=400, strategy=Strategy.FIXED)


def told(tape: list[tuple[Any, float, list[Any]]]) -> list[Seen]:
    """The events of a session's first inputs, with their places and times."""
    seen, place = [], Position(1, 0)
    for _, now_ms, effects in tape:
        for effect in effects:
            if isinstance(effect, Position):
                place = effect
            elif isinstance(effect, Event):
                seen.append(Seen(effect, place.attempt, place.fallback_index, now_ms))
    return seen


def replayed(seen: list[Seen]) -> Replay:
    replay = Replay()
    for entry in seen:
        callbacks = [callback.wire() for callback in entry.event.callbacks]
        replay.take(entry.event.type, entry.event.meta(), entry.at_ms, callbacks)
    return replay


def taken_over(
    world: World, seen: list[Seen], at_ms: float, number: int = 1, stop: str | None = None
) -> tuple[StreamMachine, Trace, Replay]:
    """Another process goes on at a time: its machine, the events of both, and what it was told."""
    past = replayed(seen)
    machine = TapedMachine(
        world.options,
        models=len(world.scripts),
        draw=lambda: 0.5,
        calls_left=Budget(max(0, world.calls_left - past.calls_taken)),
    )
    driver = StreamDriver(machine, world.scripts, start_ms=at_ms, decide=world.decide)
    driver.trace.seen = list(seen)
    return machine, driver.run(TakeOver(past, number, stop)), past


@given(worlds, st.integers(0, 200), st.integers(0, 3_000))
def test_a_session_that_is_cut_anywhere_has_one_history(world: World, at: int, away_ms: int) -> None:
    first, _ = world.run()
    tape = first.tape[: 1 + at % len(first.tape)]
    seen = told(tape)
    past = replayed(seen)
    if past.ended:
        again = world.machine()
        finish = again.recall(past)
        assert [finish] == [e for _, _, effects in tape for e in effects if isinstance(e, Finish)]
        assert (again.state, again.text, again.openings) == (first.state, first.text, first.openings)
        return
    machine, trace, _ = taken_over(world, seen, tape[-1][1] + away_ms)
    assert_log(trace.wire())
    assert trace.client_text() == machine.text
    assert trace.finish is not None
    assert machine.state is (State.COMPLETE if trace.finish.error is None else State.ERROR)
    kinds = trace.types()
    assert kinds.count("SESSION_START") == kinds.count("SESSION_END") == kinds.count("SESSION_SUMMARY") == 1
    assert machine.openings == kinds.count("STREAM_INIT") <= world.calls_left
    assert kinds.index("SESSION_END") == len(kinds) - 2
    retries = [meta["category"] for meta in trace.of("RETRY_START")]
    assert retries.count("recovery") <= 1
    for given_up in trace.of("RETRY_GIVE_UP"):
        assert given_up["attempts"] <= world.options.retry.max_retries
    for opening in trace.opens:
        assert opening.continue_from == "" or world.options.continuation is not None


def world_of(*attempts: list[dict[str, Any]], **options: Any) -> World:
    options = {"timeout": NO_LIMITS, **options}
    return World(LifecycleOptions(**options), [list(attempts)], 20, 0, None, None, [None])


def gone_on(
    world: World, kind: str, nth: int = 1, *, away_ms: float = 0, number: int = 1, stop: str | None = None
) -> Any:
    """The machine and the lines of the process that goes on when the first is lost after an event."""
    first = world.machine()
    StreamDriver(first, world.scripts, decide=world.decide, start_ms=BEGAN_MS).run()
    found = [at for at, (_, _, effects) in enumerate(first.tape) if kind in map(type_of, effects)]
    tape = first.tape[: found[nth - 1] + 1]
    seen = told(tape)
    machine, trace, _ = taken_over(world, seen, tape[-1][1] + away_ms, number, stop)
    assert_log(trace.wire())
    return machine, trace.lines()[len(Trace(seen).lines()) :], trace


def type_of(effect: Any) -> str | None:
    return effect.type if isinstance(effect, Event) else None


RECOVERED = [
    ("RETRY_START", {"maxAttempts": 3, "category": "recovery"}),
    ("RETRY_ATTEMPT", {"attempt": 2, "reason": "process_lost", "delayMs": 0, "maxAttempts": 3}),
    ("->on_retry", [2, "process_lost"]),
]


@pytest.mark.parametrize(("kind", "nth"), [("STREAM_INIT", 1), ("STREAM_READY", 1), ("TOKEN", 2)])
def test_an_attempt_that_was_lost_is_made_again_at_once(kind: str, nth: int) -> None:
    machine, lines, _ = gone_on(world_of(TALK, REST), kind, nth, number=2)
    assert lines[:6] == [
        *RECOVERED,
        ("ATTEMPT_START", {"attempt": 2, "isRetry": True, "isFallback": False, "contentOffset": 0}),
        ("->on_start", [2, True, False]),
        ("STREAM_INIT", {}),
    ]
    assert ("RETRY_END", {"success": True, "attempts": 1, "attempt": 2}) in lines
    assert machine.text == "and three."
    assert (machine.spent.retries, machine.spent.attempts, machine.openings) == (0, 0, 2)


def test_the_answer_goes_on_from_its_last_token() -> None:
    world = world_of(TALK, REST, continuation=ContinuationOptions(checkpoint_every=20))
    machine, lines, trace = gone_on(world, "TOKEN", 2, number=2)
    assert lines[3:8] == [
        ("ATTEMPT_START", {"attempt": 2, "isRetry": True, "isFallback": False, "contentOffset": 10}),
        ("->on_start", [2, True, False]),
        ("CONTINUATION_START", {"checkpointLength": 10, "checkpoint": "One, two, ", "tokenCount": 2}),
        ("RESUME_START", {"checkpoint": "One, two, ", "tokenCount": 2}),
        ("->on_resume", ["One, two, ", 2]),
    ]
    assert trace.opens[0].continue_from == "One, two, "
    assert machine.text == "One, two, and three."


def test_the_model_stays_the_one_that_was_asked() -> None:
    world = world_of([RESET], retry=RetryOptions(max_retries=0))
    world.scripts.append([TALK, REST])
    machine, lines, trace = gone_on(world, "FALLBACK_START", number=2)
    wanted = {"attempt": 2, "isRetry": True, "isFallback": True, "contentOffset": 0}
    assert lines[3:5] == [("ATTEMPT_START", wanted), ("->on_start", [2, True, True])]
    assert ("FALLBACK_END", {"index": 1, "success": True, "finalIndex": 1}) in lines
    assert [opening.fallback_index for opening in trace.opens] == [1]
    assert machine.text == "and three."


@pytest.mark.parametrize(("away_ms", "begins_ms"), [(0, 400), (300, 400), (399, 400), (1_000, 1_000)])
def test_the_rest_of_a_pause_is_waited_for(away_ms: int, begins_ms: int) -> None:
    world = world_of([RESET], REST, retry=SLOWLY)
    machine, lines, trace = gone_on(world, "RETRY_ATTEMPT", away_ms=away_ms)
    assert lines[0][0] == "ATTEMPT_START"
    (started,) = [entry.at_ms for entry in trace.seen if entry.event.type == "ATTEMPT_START"]
    assert started == BEGAN_MS + begins_ms
    assert (machine.spent.retries, machine.spent.recoveries) == (1, 0)


@pytest.mark.parametrize("kind", ["SESSION_START", "STREAM_INIT", "TOKEN", "RETRY_ATTEMPT", "FALLBACK_START"])
@pytest.mark.parametrize("continued", [None, ContinuationOptions(checkpoint_every=20)])
def test_one_that_is_to_end_asks_no_model_again(kind: str, continued: ContinuationOptions | None) -> None:
    retry = RetryOptions(max_retries=1, base_delay_ms=0)
    world = world_of([RESET], [RESET], retry=retry, continuation=continued)
    if kind == "TOKEN":
        world.scripts[0] = [TALK, REST]
    world.scripts.append([TALK, REST])
    machine, lines, trace = gone_on(world, kind, number=2, stop="user")
    assert lines[0] == ("ABORT_REQUESTED", {"source": "user"})
    assert trace.opens == []
    assert trace.finish.aborted
    assert (machine.state, trace.code) == (State.ERROR, "STREAM_ABORTED")


def test_what_was_spent_stays_spent() -> None:
    world = world_of([RESET], TALK, [RESET], retry=RetryOptions(max_retries=1, base_delay_ms=0))
    machine, _, trace = gone_on(world, "ATTEMPT_START")
    assert [meta["category"] for meta in trace.of("RETRY_START")] == ["network", "recovery"]
    assert trace.of("RETRY_GIVE_UP")[0]["reason"] == "retries_exhausted"
    assert machine.openings == 3


def test_a_recovery_is_a_model_call_of_the_run() -> None:
    world = world_of(TALK, REST)
    world.calls_left = 1
    _, lines, trace = gone_on(world, "TOKEN")
    assert [line[0] for line in lines] == [
        *("ERROR", "RETRY_GIVE_UP", "->on_error", "SESSION_END", "SESSION_SUMMARY")
    ]
    assert trace.code == "MODEL_CALLS_EXHAUSTED"
    assert trace.opens == []


def test_the_time_for_the_session_goes_on_while_nobody_has_it() -> None:
    world = world_of(TALK, REST, timeout=TimeoutOptions(None, None, total_ms=5_000))
    _, lines, trace = gone_on(world, "TOKEN", away_ms=6_000)
    assert lines[0] == ("ABORT_REQUESTED", {"source": "timeout"})
    assert trace.opens == []
    assert trace.code == "DEADLINE_EXCEEDED"


def test_the_figures_and_the_causes_are_those_of_the_whole_session() -> None:
    world = world_of([{"wait_ms": 20}, RESET], retry=RetryOptions(max_retries=0))
    world.scripts.append([TALK, [RESET]])
    _, _, trace = gone_on(world, "TOKEN", away_ms=500)
    assert trace.code == "ALL_STREAMS_EXHAUSTED"
    assert trace.finish is not None
    assert trace.finish.error is not None
    assert [cause["code"] for cause in trace.finish.error.detail["causes"]] == ["NETWORK_ERROR"] * 2
    (summary,) = trace.of("SESSION_SUMMARY")
    assert (summary["startTs"], summary["duration"], summary["fallbackDepth"]) == (BEGAN_MS, 520, 1)
    assert trace.of("SESSION_END") == [{"success": False, "totalAttempts": 3}]
