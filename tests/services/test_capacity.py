"""Turns at a model: in order of arrival, bounded in time, none lost when somebody gives up."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from app.core.faults import Fault, FaultKind, ProviderError
from app.core.limits.options import BreakerLimits, ModelLimits
from app.core.limits.room import Circuit, Outcome
from app.ports.provider import HASTY, LATE, ModelEndpoint
from app.services.capacity import Capacity, Condition, Queue, outcome_of
from tests.support.ambient import FakeClock

pytestmark = pytest.mark.anyio


def queue(**limits: Any) -> Queue:
    """A queue on a clock that stands still."""
    return Queue(ModelLimits(**{"wait_ms": 600_000, **limits}), FakeClock())


async def lined_up(line: Queue, count: int) -> list[asyncio.Task[None]]:
    """So many who wait."""
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(line.enter(f"m{number}")))
        await asyncio.sleep(0)
    assert line.condition.waiting == count
    return tasks


async def test_turns_come_in_order_of_arrival() -> None:
    line = queue(concurrency=1)
    await line.enter("m")
    tasks = await lined_up(line, 3)
    for at, task in enumerate(tasks):
        line.leave(Outcome.WELL)
        await task
        assert [other.done() for other in tasks] == [n <= at for n in range(3)]
    assert line.condition == Condition(1, 0)


async def test_whoever_gives_up_takes_no_turn() -> None:
    line = queue(concurrency=1)
    await line.enter("m")
    first, second, third = await lined_up(line, 3)
    second.cancel()
    await asyncio.wait([second])
    assert line.condition == Condition(1, 2)
    line.leave(Outcome.WELL)
    first.cancel()  # it has its turn already, and does not know yet
    await asyncio.wait([first])
    await third
    assert line.condition == Condition(1, 0)


@pytest.mark.parametrize("wait_ms", [0, 1])
async def test_who_gets_no_turn_in_time_is_told_so(wait_ms: int) -> None:
    line = queue(concurrency=1, wait_ms=wait_ms)
    await line.enter("m")
    with pytest.raises(ProviderError) as refused:
        await line.enter("m")
    assert (refused.value.fault.kind, refused.value.fault.type) == (FaultKind.HELD, "limit_reached")
    assert line.condition == Condition(1, 0)
    line.leave(Outcome.WELL)
    await line.enter("m")


async def test_an_open_circuit_sends_away_those_who_wait_and_those_who_come() -> None:
    line = queue(concurrency=1, breaker=BreakerLimits(failures=1, cooldown_ms=5_000))
    await line.enter("m")
    tasks = await lined_up(line, 2)
    line.leave(Outcome.FAILED)
    for waiting in (*tasks, line.enter("m")):
        with pytest.raises(ProviderError) as refused:
            await waiting
        assert (refused.value.fault.type, refused.value.fault.retry_after_ms) == ("circuit_open", 5_000)
    assert line.condition == Condition(0, 0, Circuit.OPEN, 1, 5_000)


async def test_a_rate_calls_those_who_wait_when_their_time_has_come() -> None:
    clock = FakeClock()
    line = Queue(ModelLimits(requests_per_minute=60_000, wait_ms=600_000), clock)
    for _ in range(60_000):
        await line.enter("m")
    tasks = await lined_up(line, 2)
    # The clock moves on its own, as clocks do; the alarm is the event loop's.
    clock.now_ms += 10
    await asyncio.gather(*tasks)
    assert line.condition.waiting == 0


async def test_a_change_of_the_limits_forgets_nothing_of_those_that_runs_still_have() -> None:
    capacity, id = Capacity(FakeClock()), UUID(int=1)
    old, new = ModelLimits(concurrency=1, wait_ms=0), ModelLimits(concurrency=2, wait_ms=0)

    async def is_let_in(limits: ModelLimits) -> bool:
        endpoint = ModelEndpoint("m", "scripted", "m", id=id, limits=limits)
        try:
            await capacity.queue(endpoint, limits).enter("m")
        except ProviderError:
            return False
        return True

    let_in = [await is_let_in(limits) for limits in (old, new, old, new, old, new)]
    assert let_in == [True, True, False, True, False, False]
    assert capacity.condition(id, old) == Condition(1, 0)
    assert capacity.condition(id, new) == Condition(2, 0)


def status(code: int) -> ProviderError:
    """An answer with an error status."""
    return ProviderError(Fault(FaultKind.STATUS, "x", status=code))


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (None, Outcome.WELL),
        (status(400), Outcome.WELL),
        (status(401), Outcome.WELL),
        (status(429), Outcome.NOTHING),
        (status(408), Outcome.FAILED),
        (status(500), Outcome.FAILED),
        (status(529), Outcome.FAILED),
        (ProviderError(Fault(FaultKind.NETWORK, "x")), Outcome.FAILED),
        (ProviderError(Fault(FaultKind.TLS, "x")), Outcome.FAILED),
        (ProviderError(Fault(FaultKind.MALFORMED, "x")), Outcome.NOTHING),
        (ProviderError(Fault(FaultKind.INTERNAL, "x")), Outcome.NOTHING),
        (ProviderError(Fault(FaultKind.IN_STREAM, "x", status=503)), Outcome.FAILED),
        (asyncio.CancelledError(), Outcome.NOTHING),
        (asyncio.CancelledError(LATE), Outcome.FAILED),
        (asyncio.CancelledError(HASTY), Outcome.FAILED),
        (GeneratorExit(), Outcome.NOTHING),
    ],
)
def test_what_an_end_says_about_the_model(failure: BaseException | None, outcome: Outcome) -> None:
    assert outcome_of(failure) is outcome


@pytest.mark.parametrize(("reason", "outcome"), [(LATE, Outcome.FAILED), (HASTY, Outcome.NOTHING)])
def test_who_has_no_patience_says_nothing_about_a_model_that_others_ask_too(
    reason: str, outcome: Outcome
) -> None:
    assert outcome_of(asyncio.CancelledError(reason), shared=True) is outcome
