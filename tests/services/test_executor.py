"""The tasks of runs: one at a time for each run, and none of those that were taken up is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import pytest

from app.core.errors import Unavailable
from app.core.record import EventEntry
from app.ports.storage import Claimed, Flush, FlushResult, RunRecord, RunStore
from app.services.background import background
from app.services.execution import Execution
from app.services.executor import Executor
from app.services.feed import Feeds
from app.services.recorder import Recorder
from tests.support.ambient import CountingIds, FakeClock
from tests.support.polling import until

pytestmark = pytest.mark.anyio

IDS = CountingIds()


class Takes:
    """A store that takes everything."""

    async def flush(self, flushes: Sequence[Flush]) -> FlushResult:
        """See the port."""
        return FlushResult()


async def test_a_run_that_is_taken_up_before_its_task_has_ended_is_executed_after_it() -> None:
    clock = FakeClock()
    store = cast(RunStore, Takes())
    recorder = Recorder(store, Feeds(), clock, lambda started: None)
    resumed: list[int] = []
    release = asyncio.Event()

    async def first(execution: Execution) -> None:
        execution.run.status = "waiting"
        await release.wait()

    async def again(execution: Execution) -> None:
        resumed.append(execution.run.epoch)
        execution.finish("completed", result="null")

    async def recovered(cause: str, execution: Execution) -> None:
        raise AssertionError("nothing is lost here")

    async def nothing(execution: Execution) -> None:
        return None

    executor = Executor(store, recorder, again, recovered, nothing, clock)
    work = asyncio.create_task(recorder.work())
    run = RunRecord(IDS.new(), IDS.new(), IDS.new(), "act", "running", "{}", datetime.now(UTC), epoch=1)
    held = executor.draft(run)
    executor.start(held, (), first)
    executor.take_up([replace(run, epoch=1)])  # told twice of the same
    executor.take_up([replace(run, status="running", epoch=2)])
    assert executor.get(run.id) is held
    release.set()
    await until(lambda: len(executor) == 0 and resumed)
    assert resumed == [2]
    work.cancel()
    await asyncio.wait([work])


class Away:
    """A store whose database is away when it is first asked for runs; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def expire(self, *, at: datetime, expired: EventEntry) -> Sequence[UUID]:
        """See the port."""
        return []

    async def claim(self, limit: int, *, lost: bool = True) -> Claimed:
        """See the port."""
        self.asked.append(lost)
        if len(self.asked) == 1:
            raise Unavailable("The database is away.")
        return Claimed()


async def test_after_an_outage_nobody_counts_as_lost_until_he_could_say_that_he_lives() -> None:
    clock, away = FakeClock(), Away()
    store = cast(RunStore, away)
    recorder = Recorder(store, Feeds(), clock, lambda started: None)

    async def nothing(execution: Execution) -> None:
        return None

    async def recovered(cause: str, execution: Execution) -> None:
        return None

    executor = Executor(store, recorder, nothing, recovered, nothing, clock, beat_s=0.01, grace_s=15)
    async with background(executor.work()):
        await until(lambda: len(away.asked) >= 3)
        clock.now_ms += 14_999
        seen = len(away.asked)
        await until(lambda: len(away.asked) >= seen + 2)
        assert away.asked == [True, *[False] * (len(away.asked) - 1)]
        clock.now_ms += 1
        await until(lambda: away.asked[-1])


class AwayForOnce:
    """A store whose database is away when a run is first given back; notes those that it got."""

    def __init__(self) -> None:
        self.tried = 0
        self.got: list[UUID] = []

    async def give_back(self, runs: Sequence[RunRecord]) -> None:
        """See the port."""
        self.tried += 1
        if self.tried == 1:
            raise Unavailable("The database is away.")
        self.got += [run.id for run in runs]


async def test_what_could_not_be_given_back_is_given_back_later() -> None:
    clock, away = FakeClock(), AwayForOnce()
    store = cast(RunStore, away)
    recorder = Recorder(store, Feeds(), clock, lambda started: None)

    async def nothing(execution: Execution) -> None:
        return None

    async def recovered(cause: str, execution: Execution) -> None:
        return None

    executor = Executor(store, recorder, nothing, recovered, nothing, clock)
    executor.retire()
    run = RunRecord(IDS.new(), IDS.new(), IDS.new(), "act", "running", "{}", datetime.now(UTC), epoch=1)
    executor.take_up([run])
    with pytest.raises(Unavailable):
        await executor.put_back()
    await executor.put_back()
    assert away.got == [run.id]
