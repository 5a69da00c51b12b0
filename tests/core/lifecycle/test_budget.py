"""Streams of one run that share the calls that are left to it."""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event
from app.core.faults import Fault, FaultKind
from app.core.lifecycle.budget import Budget
from app.core.lifecycle.effects import Effect, Finish, Open
from app.core.lifecycle.inputs import Begin, Failed, Tick
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import LifecycleOptions

REFUSED = Failed(Fault(FaultKind.NETWORK, "refused"))


def machines(budget: Budget, number: int) -> list[StreamMachine]:
    return [
        StreamMachine(
            LifecycleOptions(), models=1, draw=lambda: 0.5, purpose="voter", calls_left=budget, index=at
        )
        for at in range(number)
    ]


def of(kind: type[Any], effects: list[Effect]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def test_a_retry_that_was_announced_can_be_made_whatever_the_others_do() -> None:
    budget = Budget(3)
    first, second = machines(budget, 2)
    for machine in (first, second):
        assert len(of(Open, machine.feed(Begin(), 0))) == 1
    assert of(Finish, first.feed(REFUSED, 1)) == []
    assert budget.left == 0
    effects = second.feed(REFUSED, 2)
    (finish,) = of(Finish, effects)
    assert finish.error.code == "NETWORK_ERROR"
    assert [e.reason for e in effects if isinstance(e, Event) and e.type == "RETRY_GIVE_UP"] == [  # type: ignore[attr-defined]
        "model_calls_exhausted"
    ]
    assert first.deadline_ms is not None
    assert len(of(Open, first.feed(Tick(), first.deadline_ms))) == 1


def test_a_stream_that_may_not_open_says_so() -> None:
    budget = Budget(1)
    first, second = machines(budget, 2)
    first.feed(Begin(), 0)
    effects = second.feed(Begin(), 0)
    assert of(Open, effects) == []
    (finish,) = of(Finish, effects)
    assert finish.error.code == "MODEL_CALLS_EXHAUSTED"
    assert budget.left == 0


def test_a_session_says_which_voter_it_is_of() -> None:
    started = [machine.feed(Begin(), 0)[1] for machine in machines(Budget(2), 2)]
    metas = [event.meta() for event in started if isinstance(event, Event)]
    assert [(meta["purpose"], meta["index"]) for meta in metas] == [("voter", 0), ("voter", 1)]
    (alone,) = [StreamMachine(LifecycleOptions(), models=1, draw=lambda: 0.5)]
    event = alone.feed(Begin(), 0)[1]
    assert isinstance(event, Event)
    assert "index" not in event.meta()
