"""What holds for every session, whatever the servers, the clock and the caller do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.core.drift.monitor import DriftOptions
from app.core.guardrails.base import CalledRule, Check, Rule, Severity, Tail, Violation
from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.effects import Ask, Effect, Finish
from app.core.lifecycle.inputs import Answer, Input
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import (
    REASONS,
    ContinuationOptions,
    LifecycleOptions,
    RetryOptions,
    TimeoutOptions,
)
from app.core.lifecycle.replay import Replay
from app.core.lifecycle.table import State
from tests.support.invariants import assert_log
from tests.support.stream_driver import StreamDriver, Trace

milliseconds = st.integers(0, 1_500)
limits = st.none() | st.integers(1, 1_000)
texts = st.sampled_from(["", " ", "a", "naïve ", "🦦", "..........", "two words"])


class Spotting(Rule):
    """Finds every letter of a kind."""

    def __init__(
        self, letter: str, severity: Severity, *, streaming: bool = True, raises: bool = False
    ) -> None:
        super().__init__(None, severity)
        self.letter, self.in_stream, self.raises = letter, streaming, raises

    name = "spotting"

    @property
    def streaming(self) -> bool:  # type: ignore[override]
        return self.in_stream

    def start(self) -> Check:
        return Spotted(self)


class Spotted(Check):
    def __init__(self, rule: Spotting) -> None:
        self.rule, self.seen = rule, 0

    def tail(self, tail: Tail) -> Sequence[Violation]:
        if self.rule.raises:
            raise RuntimeError("out of order")
        assert tail.offset + tail.new == self.seen
        self.seen = tail.offset + len(tail.text)
        at = tail.text.find(self.rule.letter, tail.new)
        return [] if at < 0 else [self.rule.found("spotted", tail.offset + at)]

    def end(self, text: str) -> Sequence[Violation]:
        assert not self.rule.streaming or self.rule.raises or self.seen == len(text)
        if self.rule.streaming or self.rule.letter not in text:
            return []
        return [self.rule.found("spotted", text.index(self.rule.letter))]


RULES: list[Rule] = [
    Spotting("a", "error"),
    Spotting("ï", "warning"),
    Spotting("🦦", "fatal"),
    Spotting("w", "error", streaming=False),
    Spotting("a", "error", raises=True),
    CalledRule("outside", streaming=True),
    CalledRule("outside at the end"),
]

errors = st.fixed_dictionaries(
    {"kind": st.sampled_from(["network", "tls", "status", "in_stream", "malformed", "internal"])},
    optional={
        "status": st.sampled_from([400, 401, 408, 429, 500, 503]),
        "type": st.sampled_from(["connection_reset", "overloaded_error", "odd"]),
        "retry_after_ms": st.integers(0, 3_000),
    },
)
tool_calls = st.fixed_dictionaries(
    {"index": st.integers(0, 2)},
    optional={
        "id": st.sampled_from(["call_1", "call_2"]),
        "name": st.sampled_from(["", "add"]),
        "arguments": st.sampled_from(["", "{}", '{"a": 1', "}"]),
    },
)
reasons = st.sampled_from([None, "stop", "length", "tool_calls", "content_filter", "refusal", "paused"])
blocks = st.lists(st.fixed_dictionaries({"json": st.just("{}"), "at": st.integers(0, 9)}), max_size=2)


def step(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda value: {name: value}, values)


steps = st.one_of(
    step("text", texts),
    step("text", texts),
    step("reasoning", texts),
    step("refusal", texts),
    step("tool_call", tool_calls),
    step("wait_ms", milliseconds),
    step("open_wait_ms", milliseconds),
    step("hold_ms", milliseconds),
    step("opaque", blocks),
    step("keep_alive", st.just(True)),
    step("usage", st.just({"input_tokens": 3, "output_tokens": 2})),
    step("finish", reasons.filter(bool)),
    step("end", reasons),
    step("error", errors),
)
scripts = st.lists(st.lists(st.lists(steps, max_size=6), min_size=1, max_size=4), min_size=1, max_size=3)

options = st.builds(
    LifecycleOptions,
    timeout=st.builds(
        TimeoutOptions,
        initial_ms=limits,
        inter_ms=limits,
        total_ms=st.none() | st.integers(1, 8_000),
        alive_ms=st.integers(0, 2_000),
    ),
    retry=st.builds(
        RetryOptions,
        attempts=st.integers(0, 3),
        max_retries=st.integers(0, 4),
        should_retry=st.none() | st.just("asked"),
        calculate_delay=st.none() | st.just("asked"),
        base_delay_ms=st.sampled_from([0, 0, 50, 1_000]),
        strategy=st.sampled_from(Strategy),
        retry_on=st.sampled_from([REASONS, REASONS, frozenset({"network_error"}), frozenset()]),
    ),
    continuation=st.none()
    | st.builds(
        ContinuationOptions,
        checkpoint_every=st.integers(1, 3),
        min_overlap=st.integers(1, 3),
        max_overlap=st.sampled_from([1, 3, 500]),
    ),
    guardrails=st.lists(st.sampled_from(RULES), max_size=3).map(tuple),
    guardrails_every=st.integers(1, 3),
    drift=st.none() | st.just(DriftOptions()),
    drift_every=st.integers(1, 3),
    detect_zero_tokens=st.booleans(),
    events=st.sampled_from(["standard", "full"]),
)


class TapedMachine(StreamMachine):
    """Keeps its inputs and effects."""

    __slots__ = ("tape",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tape: list[tuple[Input, float, list[Effect]]] = []

    def feed(self, item: Input, now_ms: float) -> list[Effect]:
        effects = super().feed(item, now_ms)
        self.tape.append((item, now_ms, effects))
        return effects


@dataclass
class World:
    """One session and everything that happens to it."""

    options: LifecycleOptions
    scripts: list[list[list[dict[str, Any]]]]
    calls_left: int
    seed: int
    abort_at_ms: float | None
    abort_after_tokens: int | None
    answers: list[Answer | None]

    def machine(self) -> TapedMachine:
        return TapedMachine(
            self.options,
            models=len(self.scripts),
            draw=Random(self.seed).random,
            calls_left=self.calls_left,
        )

    def run(self) -> tuple[TapedMachine, Trace]:
        machine = self.machine()
        driver = StreamDriver(
            machine,
            self.scripts,
            abort_at_ms=self.abort_at_ms,
            abort_after_tokens=self.abort_after_tokens,
            decide=self.decide,
        )
        return machine, driver.run()

    def decide(self, ask: Ask) -> Answer | None:
        """One of the world's answers, chosen by what is asked; a guardrail's findings are findings."""
        answer = self.answers[len(str(ask.question)) % len(self.answers)]
        if ask.kind == "guardrail" and answer is not None and answer.error is None:
            return Answer([] if answer.value else [{"message": "no"}], duration_ms=answer.duration_ms)
        return answer


answers = st.one_of(
    st.none(),
    st.builds(Answer, value=st.sampled_from([True, True, False, None, [], 0, 250, -1, 1e300, "yes"])),
    st.builds(Answer, error=st.just("failed"), duration_ms=st.integers(0, 500)),
)

worlds = st.builds(
    World,
    options=options,
    scripts=scripts,
    calls_left=st.integers(0, 12),
    seed=st.integers(0, 2**32),
    abort_at_ms=st.none() | st.integers(0, 5_000),
    abort_after_tokens=st.none() | st.integers(0, 4),
    answers=st.lists(answers, min_size=1, max_size=3),
)


@given(worlds)
def test_a_session_ends_once_and_within_its_budgets(world: World) -> None:
    machine, trace = world.run()
    assert trace.finish is not None
    assert machine.state is (State.COMPLETE if trace.finish.error is None else State.ERROR)
    assert machine.deadline_ms is None
    assert machine.openings == len(trace.opens) <= world.calls_left
    retries_left = world.options.retry.max_retries
    for index in range(len(world.scripts)):
        # One that goes on after a pause of its provider's is no attempt of its own.
        openings = sum(effect.fallback_index == index and effect.paused is None for effect in trace.opens)
        assert openings <= retries_left + 1


@given(worlds)
def test_a_client_that_obeys_the_offsets_has_the_right_text(world: World) -> None:
    machine, trace = world.run()
    assert trace.client_text() == machine.text
    for complete in trace.of("COMPLETE"):
        assert complete["contentLength"] == len(machine.text)
        assert complete["tokenCount"] == machine.token_count
    for aborted in trace.of("ABORT_COMPLETED"):
        assert aborted == {"tokenCount": machine.token_count, "contentLength": len(machine.text)}


@given(worlds)
def test_events_are_framed_and_follow_each_other_as_the_contract_says(world: World) -> None:
    _, trace = world.run()
    types = trace.types()
    assert types[0] == "SESSION_START"
    assert types[-2:] == ["SESSION_END", "SESSION_SUMMARY"]
    assert types.count("SESSION_START") == types.count("SESSION_END") == types.count("SESSION_SUMMARY") == 1
    assert types.count("STREAM_INIT") == len(trace.opens)
    for before, after in pairwise(kind for kind in types if not kind.startswith(("GUARDRAIL_", "RETRY_FN_"))):
        assert (after == "ATTEMPT_START") <= (before == "RETRY_ATTEMPT")
        # The time may be over while the caller is asked for the pause.
        assert (after == "RETRY_ATTEMPT") == (before == "RETRY_START") or after == "ABORT_REQUESTED"
        assert (after == "FALLBACK_MODEL_SELECTED") == (before == "FALLBACK_START")
        assert (after == "SESSION_SUMMARY") == (before == "SESSION_END")
    assert all(token["text"] for token in trace.of("TOKEN"))
    finished = trace.finish
    assert finished is not None
    assert types.count("COMPLETE") == (finished.error is None)
    assert types.count("ABORT_REQUESTED") == types.count("ABORT_COMPLETED")


@given(worlds)
def test_every_event_and_session_is_what_the_contracts_say(world: World) -> None:
    _, trace = world.run()
    assert_log(trace.wire())


@given(worlds)
def test_every_error_is_told_once_with_what_follows_from_it(world: World) -> None:
    _, trace = world.run()
    told = [(args[1], args[2]) for args in (c.args for c in trace.callbacks("on_error"))]
    follows = {"retry": (True, False), "fallback": (False, True), "halt": (False, False)}
    assert told == [follows[error["recoveryStrategy"]] for error in trace.of("ERROR")]
    given_up = sum(error["recoveryStrategy"] != "retry" for error in trace.of("ERROR"))
    assert len(trace.of("RETRY_GIVE_UP")) == given_up
    assert len(trace.of("FALLBACK_START")) == len(trace.callbacks("on_fallback"))
    starts = 1 + len(trace.of("ATTEMPT_START")) + len(trace.of("FALLBACK_START"))
    assert len(trace.callbacks("on_start")) == starts


@given(worlds)
def test_a_session_can_be_replayed_from_its_inputs(world: World) -> None:
    machine, _ = world.run()
    again = world.machine()
    for item, now_ms, effects in machine.tape:
        assert again.feed(item, now_ms) == effects
    assert (again.state, again.text, again.tool_calls) == (machine.state, machine.text, machine.tool_calls)


@given(worlds)
def test_a_session_can_be_replayed_from_its_log(world: World) -> None:
    machine, trace = world.run()
    replay = Replay()
    for event in trace.events:
        replay.take(event.type, event.meta(), 0.0, [callback.wire() for callback in event.callbacks])
    assert replay.state is machine.state
    assert (replay.attempt, replay.fallback_index) == (machine.attempt, machine.fallback_index)
    assert (replay.texts, replay.openings) == (machine.draft.texts, machine.openings)
    tally = machine.tally
    found = (replay.model_retries, replay.network_retries, replay.violations, replay.checkpoints)
    assert found == (tally.model_retries, tally.network_retries, tally.violations, tally.checkpoints)
    assert replay.drift_detected == tally.drift_detected
    assert (replay.spent, replay.saved_at) == (machine.spent, machine.saved_at)
    assert replay.in_fallback is machine.in_fallback
    if replay.ended:
        (finish,) = [e for _, _, effects in machine.tape for e in effects if isinstance(e, Finish)]
        assert replay.finish() == finish
    if machine.state is State.COMPLETE:
        assert replay.tool_calls == [replace(call, raw="", replaced=0) for call in machine.tool_calls]
        assert replay.finish_reason == machine.finish_reason
        assert replay.finish_reason_raw == machine.finish_reason_raw


@given(worlds)
def test_a_checkpoint_is_never_longer_than_the_text_it_refers_to(world: World) -> None:
    _, trace = world.run()
    trace.lines()  # Reads every reference against the text as the client has it.
    for opening in trace.opens:
        assert opening.continue_from == "" or world.options.continuation is not None
