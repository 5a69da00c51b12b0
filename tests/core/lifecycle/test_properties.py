"""What holds for every session, whatever the servers, the clock and the caller do."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.effects import Effect
from app.core.lifecycle.inputs import Input
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import REASONS, LifecycleOptions, RetryOptions, TimeoutOptions
from app.core.lifecycle.table import State
from tests.support.stream_driver import StreamDriver, Trace

milliseconds = st.integers(0, 1_500)
limits = st.none() | st.integers(1, 1_000)
texts = st.sampled_from(["", " ", "a", "naïve ", "🦦", "..........", "two words"])

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
reasons = st.sampled_from([None, "stop", "length", "tool_calls", "content_filter", "refusal"])


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
        base_delay_ms=st.sampled_from([0, 0, 50, 1_000]),
        strategy=st.sampled_from(Strategy),
        retry_on=st.sampled_from([REASONS, REASONS, frozenset({"network_error"}), frozenset()]),
    ),
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
        )
        return machine, driver.run()


worlds = st.builds(
    World,
    options=options,
    scripts=scripts,
    calls_left=st.integers(0, 12),
    seed=st.integers(0, 2**32),
    abort_at_ms=st.none() | st.integers(0, 5_000),
    abort_after_tokens=st.none() | st.integers(0, 4),
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
        openings = sum(effect.fallback_index == index for effect in trace.opens)
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
    for before, after in pairwise(types):
        assert (after == "ATTEMPT_START") <= (before == "RETRY_ATTEMPT")
        assert (after == "RETRY_ATTEMPT") == (before == "RETRY_START")
        assert (after == "FALLBACK_MODEL_SELECTED") == (before == "FALLBACK_START")
        assert (after == "SESSION_SUMMARY") == (before == "SESSION_END")
    assert all(token["text"] for token in trace.of("TOKEN"))
    finished = trace.finish
    assert finished is not None
    assert types.count("COMPLETE") == (finished.error is None)
    assert types.count("ABORT_REQUESTED") == types.count("ABORT_COMPLETED")


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
