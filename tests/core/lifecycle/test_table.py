"""The transition table: what the contract names is in it, and every edge that is built is walked."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import LifecycleOptions
from app.core.lifecycle.table import EDGES, TERMINAL, IllegalTransition, State, step
from tests.support.stream_driver import StreamDriver
from tests.support.walks import GOOD, STANDARD, UNWALKED, WatchedMachine, walked_by

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


def test_every_edge_is_walked_by_a_script_or_it_is_said_why_not() -> None:
    walked = set(walked_by())
    assert walked <= PAIRS
    assert PAIRS - walked == UNWALKED.keys()


def test_without_a_model_call_left_the_session_ends_before_it_began() -> None:
    machine = WatchedMachine(STANDARD, models=1, draw=lambda: 0.5, calls_left=0)
    trace = StreamDriver(machine, [GOOD]).run()
    assert machine.walked == [("INIT", "ERROR")]
    assert trace.finish
    assert trace.finish.error
    assert trace.finish.error.code == "MODEL_CALLS_EXHAUSTED"
    assert trace.types() == ["SESSION_START", "ERROR", "RETRY_GIVE_UP", "SESSION_END", "SESSION_SUMMARY"]
