"""Processes that are paused and killed at random: each run has one history, whoever believes to hold it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any, cast
from uuid import UUID

import asyncpg
import orjson
import pytest

from app.adapters.ambient import SystemClock, Uuid7Ids
from app.adapters.db.engine import driver_arguments
from app.adapters.db.run_store import PostgresRuns
from app.core.events.run import ResultValidated, RunCompleted, RunStarted
from app.core.record import Entry, EventEntry
from app.ports.storage import Accepted, NewRun, RunRecord, RunStore
from app.services.execution import Execution
from app.services.executor import Executor
from app.services.feed import Feeds
from app.services.recorder import Recorder
from tests.support.polling import until_true

pytestmark = pytest.mark.anyio

PROJECT = UUID(int=1)
STEPS = 30
"""Events that each run has to write, one after another, before it may end."""
LEASE_MS = 150
CLOCK, IDS = SystemClock(), Uuid7Ids()


class Reachable:
    """A store that nothing reaches while its process is paused: what is on its way arrives afterwards."""

    def __init__(self, store: PostgresRuns) -> None:
        self._store = store
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await self.goes_on.wait()
            answer = await getattr(self._store, name)(*args, **kwargs)
            await self.goes_on.wait()
            return answer

        return call


class Process:
    """Recorder and executor as every process has them, on a connection that can be held up."""

    def __init__(self, url: str, random: Random) -> None:
        self.store = PostgresRuns(driver_arguments(url), owner=IDS.new(), lease_ms=LEASE_MS, clock=CLOCK)
        self.reachable = Reachable(self.store)
        self.random = random
        self.stored: list[tuple[UUID, int, int]] = []
        """Run, epoch and step of all that it was told to be stored."""
        self.claimed: list[tuple[UUID, int, int]] = []
        """Run, epoch and last event of all that it took over."""
        store = cast(RunStore, self.reachable)
        self.recorder = Recorder(store, Feeds(), CLOCK, lambda started: self.executor.take_up(started))
        self.executor = Executor(
            store, self.recorder, self.work, self.recover, self.nothing, CLOCK, beat_s=LEASE_MS / 5_000
        )
        self.tasks = [asyncio.create_task(self.recorder.work()), asyncio.create_task(self.executor.work())]

    async def nothing(self, execution: Execution) -> None:
        """There are no calls to be ended."""

    async def work(self, execution: Execution) -> None:
        """Count on from where the log ends."""
        run = execution.run
        done = run.last_seq - 1
        for step in range(done, STEPS):
            execution.log.event(ResultValidated(True, str(run.epoch), [str(step)]))
            if self.random.random() < 0.5:
                await execution.log.committed()
                self.stored.append((run.id, run.epoch, step))
            await asyncio.sleep(self.random.random() * 0.01)
        execution.finish("completed", result="null")

    async def recover(self, cause: str, execution: Execution) -> None:
        """As `work`: the log says how far it is; whoever had it before has time to say more, if it can."""
        self.claimed.append((execution.run.id, execution.run.epoch, execution.run.last_seq))
        await asyncio.sleep(self.random.uniform(0, LEASE_MS * 2 / 1000))
        await self.work(execution)

    async def start(self, run: RunRecord) -> None:
        """Accept a run, and execute it."""
        execution = self.executor.draft(run)
        execution.log.event(RunStarted())
        first, _ = execution.log.take()
        new = NewRun(run, seen_version=1, seen_position=0, entries=first.entries)
        assert await self.store.accept(new) == Accepted(running=True)
        run.status, run.epoch, run.last_seq = "running", 1, 1
        self.executor.start(execution, first.entries, self.work)

    async def kill(self) -> None:
        """Everything of it stops where it is; what it had sent may still arrive."""
        running = [task for task in asyncio.all_tasks() if task in self.executor._tasks]
        for task in (*self.tasks, *running):
            task.cancel()
        await asyncio.wait([*self.tasks, *running])
        await self.store.close()


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    made = await asyncpg.connect(**driver_arguments(database_url))
    await made.execute("INSERT INTO projects (id, name) VALUES ($1, 'fenced')", PROJECT)
    yield made
    await made.close()


def assert_one_history(
    entries: list[Entry], stored: set[tuple[int, int]], claimed: set[tuple[int, int]]
) -> None:
    """Every step is told once, in order, by holders that followed each other; what was stored is there."""
    events = [entry for entry in entries if isinstance(entry, EventEntry)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.code for event in events] == [
        RunStarted.code,
        *[ResultValidated.code] * STEPS,
        RunCompleted.code,
    ]
    told = [orjson.loads(event.meta or "{}") for event in events[1:-1]]
    written = [(int(meta["kind"]), int(meta["errors"][0])) for meta in told]
    assert [step for _, step in written] == list(range(STEPS))
    assert [epoch for epoch, _ in written] == sorted(epoch for epoch, _ in written)
    assert stored <= set(written)
    for holder, last_seq in claimed:
        for event, (epoch, _) in zip(events[1:], written, strict=False):
            assert (event.seq > last_seq) == (epoch >= holder), "an earlier holder wrote after it was fenced"


@pytest.mark.parametrize("seed", range(4))
async def test_a_paused_process_writes_nothing_once_another_has_its_runs(
    database_url: str, connection: asyncpg.Connection[Any], seed: int
) -> None:
    random = Random(seed)
    processes = [Process(database_url, random) for _ in range(3)]
    everybody = list(processes)
    processes[
        0
    ].reachable.goes_on.clear()  # it ends nothing before it is killed: there is something to take over
    runs = []
    for at in range(6):
        branch = IDS.new()
        await connection.execute("INSERT INTO branches (id, project_id) VALUES ($1, $2)", branch, PROJECT)
        run = RunRecord(IDS.new(), PROJECT, branch, "operate", "queued", "{}", datetime.now(UTC))
        runs.append(run.id)
        await processes[at % 3].start(run)

    async def replace(victim: Process) -> None:
        await victim.kill()
        processes.remove(victim)
        processes.append(Process(database_url, random))
        everybody.append(processes[-1])

    async def trouble() -> None:
        await replace(processes[0])
        while True:
            victim = random.choice(processes)
            if random.random() < 0.3:
                await replace(victim)
            else:
                victim.reachable.goes_on.clear()
                asyncio.get_running_loop().call_later(
                    random.uniform(0, LEASE_MS * 3 / 1000), victim.reachable.goes_on.set
                )
            await asyncio.sleep(random.uniform(0, LEASE_MS / 1000))

    async def all_ended() -> bool:
        left = "SELECT count(*) FROM runs WHERE ended_at IS NULL"
        return bool(await connection.fetchval(left) == 0)

    troubling = asyncio.create_task(trouble())
    try:
        await until_true(all_ended, within_s=60)
    finally:
        troubling.cancel()
        with suppress(asyncio.CancelledError):
            await troubling
        reader = Process(database_url, random)
        logs = {id: list(await reader.store.page(id, after=0, limit=1000)) for id in runs}
        for process in (*processes, reader):
            process.reachable.goes_on.set()
            await process.kill()
    for run_id in runs:
        stored = {(e, s) for p in everybody for (r, e, s) in p.stored if r == run_id}
        claimed = {(e, s) for p in everybody for (r, e, s) in p.claimed if r == run_id}
        assert_one_history(logs[run_id], stored, claimed)
    epochs = [row["epoch"] for row in await connection.fetch("SELECT epoch FROM runs")]
    assert max(epochs) > 1, "nothing was ever taken over"
