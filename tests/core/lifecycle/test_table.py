"""The transition table: what the contract names is in it, and every edge that is built is walked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import NO_TIMEOUTS, LifecycleOptions, RetryOptions, TimeoutOptions
from app.core.lifecycle.table import EDGES, TERMINAL, IllegalTransition, State, step
from tests.support.stream_driver import StreamDriver

PAIRS = {(edge.source.value, edge.target.value) for edge in EDGES}

CONTRACT_CHAINS = [
    "INIT WAITING_FOR_TOKEN STREAMING",
    "STREAMING TOOL_CALL_DETECTED STREAMING",
    "STREAMING CONTINUATION_MATCHING CHECKPOINT_VERIFYING STREAMING",
    "STREAMING FINALIZING COMPLETE",
    "STREAMING RETRYING STREAMING",
    "STREAMING FALLBACK STREAMING",
    "STREAMING ERROR",
    "FINALIZING ERROR",
    "WAITING_FOR_TOKEN RETRYING WAITING_FOR_TOKEN STREAMING",
    "WAITING_FOR_TOKEN FALLBACK WAITING_FOR_TOKEN",
    "WAITING_FOR_TOKEN ERROR",
    "WAITING_FOR_TOKEN FINALIZING RETRYING",
    "FINALIZING FALLBACK",
    "WAITING_FOR_TOKEN TOOL_CALL_DETECTED FINALIZING",
    "INIT FALLBACK",
    "INIT ERROR",
    "RETRYING ERROR",
    "FALLBACK ERROR",
    *(
        f"{state} {end}"
        for state in ("TOOL_CALL_DETECTED", "CONTINUATION_MATCHING", "CHECKPOINT_VERIFYING")
        for end in ("RETRYING", "FALLBACK", "FINALIZING", "ERROR")
    ),
]


@pytest.mark.parametrize("chain", CONTRACT_CHAINS)
def test_the_contract_is_in_the_table(chain: str) -> None:
    states = chain.split()
    assert set(pairwise(states)) <= PAIRS


def test_no_edge_is_listed_twice() -> None:
    assert len(PAIRS) == len(EDGES)


def test_terminal_states_lead_nowhere_and_all_others_lead_on() -> None:
    assert {edge.source for edge in EDGES} == set(State) - TERMINAL


@pytest.mark.parametrize("source", State)
@pytest.mark.parametrize("target", State)
def test_a_step_is_legal_if_and_only_if_the_table_has_it(source: State, target: State) -> None:
    if (source.value, target.value) in PAIRS:
        assert step(source, target) is target
    else:
        with pytest.raises(IllegalTransition):
            step(source, target)


def test_an_illegal_transition_changes_nothing() -> None:
    machine = StreamMachine(LifecycleOptions(), models=1, draw=lambda: 0.5)
    with pytest.raises(IllegalTransition, match="INIT to COMPLETE"):
        machine.enter(State.COMPLETE)
    assert machine.state is State.INIT


class WatchedMachine(StreamMachine):
    """Notes every transition."""

    __slots__ = ("walked",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.walked: set[tuple[str, str]] = set()

    def enter(self, state: State) -> None:
        before = self.state
        super().enter(state)
        self.walked.add((before.value, state.value))


RESET = {"error": {"kind": "network", "type": "connection_reset"}}
DENIED = {"error": {"kind": "status", "status": 401}}
END = {"end": "stop"}
TEXT = {"text": "a"}
CALL = {"tool_call": {"index": 0, "name": "add", "arguments": "{}"}}
GOOD = [[TEXT, END]]

STANDARD = LifecycleOptions(timeout=NO_TIMEOUTS)
ONCE = LifecycleOptions(timeout=NO_TIMEOUTS, retry=RetryOptions(attempts=0, max_retries=0))
DEADLINE = LifecycleOptions(timeout=TimeoutOptions(initial_ms=None, inter_ms=None, total_ms=100))

SCRIPTS: dict[str, tuple[LifecycleOptions, list[list[list[dict[str, Any]]]]]] = {
    "text": (STANDARD, [GOOD]),
    "call first": (STANDARD, [[[CALL, END]]]),
    "text, call, text": (STANDARD, [[[TEXT, CALL, TEXT, END]]]),
    "reset while waiting": (STANDARD, [[[RESET], *GOOD]]),
    "reset in the text": (STANDARD, [[[TEXT, RESET], *GOOD]]),
    "reset in a call": (STANDARD, [[[CALL, RESET], *GOOD]]),
    "empty, then good": (STANDARD, [[[END], *GOOD]]),
    "denied while waiting": (ONCE, [[[DENIED]], GOOD]),
    "denied in the text": (ONCE, [[[TEXT, DENIED]], GOOD]),
    "denied in a call": (ONCE, [[[CALL, DENIED]], GOOD]),
    "empty, then fallback": (ONCE, [[[END]], GOOD]),
    "last one denied": (ONCE, [[[DENIED]]]),
    "last one denied in the text": (ONCE, [[[TEXT, DENIED]]]),
    "last one denied in a call": (ONCE, [[[CALL, DENIED]]]),
    "last one empty": (ONCE, [[[END]]]),
    "deadline in a pause": (DEADLINE, [[[TEXT, RESET]]]),
}

UNWALKED = {
    ("INIT", "ERROR"): "walked below: it needs a budget of nothing",
    ("INIT", "FALLBACK"): "a missing adapter is a failed opening, in WAITING_FOR_TOKEN",
    ("RETRYING", "STREAMING"): "walked through WAITING_FOR_TOKEN",
    ("FALLBACK", "STREAMING"): "walked through WAITING_FOR_TOKEN",
    ("FALLBACK", "ERROR"): "the next model is asked within the same input",
}
"""Edges of the contract that no script walks, and why."""


def continuation(edge: tuple[str, str]) -> bool:
    """Whether an edge waits for continuation."""
    return bool({"CONTINUATION_MATCHING", "CHECKPOINT_VERIFYING"} & set(edge))


def all_walked() -> Iterator[tuple[str, str]]:
    for options, scripts in SCRIPTS.values():
        machine = WatchedMachine(options, models=len(scripts), draw=lambda: 0.5)
        StreamDriver(machine, scripts).run()
        yield from machine.walked


def test_every_edge_that_is_built_is_walked() -> None:
    assert set(all_walked()) == {edge for edge in PAIRS if edge not in UNWALKED and not continuation(edge)}


def test_without_a_model_call_left_the_session_ends_before_it_began() -> None:
    machine = WatchedMachine(STANDARD, models=1, draw=lambda: 0.5, calls_left=0)
    trace = StreamDriver(machine, [GOOD]).run()
    assert machine.walked == {("INIT", "ERROR")}
    assert trace.finish
    assert trace.finish.error
    assert trace.finish.error.code == "MODEL_CALLS_EXHAUSTED"
    assert trace.types() == ["SESSION_START", "ERROR", "RETRY_GIVE_UP", "SESSION_END", "SESSION_SUMMARY"]
