"""Put together what executes runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.adapters.db.engine import driver_arguments
from app.adapters.db.hints import PostgresHints
from app.adapters.db.run_store import PostgresRuns
from app.adapters.run_figures import RunFigures
from app.core.errors import Unavailable
from app.core.guardrails.base import Rule
from app.ports.ambient import Clock, IdSource
from app.ports.context import ContextProviders
from app.ports.hints import Topic
from app.ports.provider import Provider
from app.ports.tool import ToolCatalog, ToolRunner
from app.services.act import Acting
from app.services.act_runs import ActPlanner
from app.services.background import background
from app.services.consensus import ConsensusPlanner
from app.services.elsewhere import Elsewhere
from app.services.execution import Execution
from app.services.executor import BEAT_S, Executor
from app.services.feed import Feeds
from app.services.lost_attempts import LostAttempts
from app.services.operate import OperatePlanner
from app.services.outside import ModelCatalog, Outside
from app.services.oversight import Overseer
from app.services.plan import Planner
from app.services.recorder import Listener, Recorder
from app.services.recovery import Recovery
from app.services.runs import Runs
from app.services.stream import Decide


@dataclass(frozen=True, slots=True)
class Machinery:
    """Everything that accepts, executes and follows runs."""

    store: PostgresRuns
    hints: PostgresHints
    elsewhere: Elsewhere
    recorder: Recorder
    executor: Executor
    runs: Runs
    feeds: Feeds

    def heard(self, topic: Topic, runs: Sequence[UUID]) -> None:
        """See `ports.hints.Hearer`."""
        match topic:
            case Topic.WORK:
                self.executor.hurry()
            case Topic.CANCEL:
                for run_id in runs:
                    self.executor.cancel(run_id)
            case _:
                self.elsewhere.heard(topic, runs)

    def show(self, figures: RunFigures) -> None:
        """Have the figures among the metrics."""
        recorder, spent, hints = self.recorder, self.recorder.spent, self.hints
        figures.counter("record_commits", "Groups of log entries committed", lambda: recorder.commits)
        figures.counter(
            "record_entries", "Log entries committed; a block of tokens is one", lambda: recorder.entries
        )
        figures.counter("runs_ended", "Runs that this process ended", lambda: recorder.ends)
        figures.counter("model_attempts", "Attempts at models that ended", lambda: spent.attempts)
        figures.counter("model_input_tokens", "Tokens read, estimated ones too", lambda: spent.input_tokens)
        figures.counter("model_output_tokens", "Tokens made, estimated ones too", lambda: spent.output_tokens)
        figures.gauge("runs_active", "Runs that this process executes", lambda: len(self.executor))
        figures.gauge("record_paused", "1 while the database is away", lambda: float(recorder.paused))
        figures.counter("hints_sent", "Hints sent to other processes", lambda: hints.sent)
        figures.counter("hints_received", "Hints received from other processes", lambda: hints.received)
        figures.gauge("hints_deaf", "1 while no hint can be heard", lambda: float(hints.deaf))

    def missed(self) -> None:
        """See `ports.hints.Hearer`."""
        self.executor.hurry()
        self.elsewhere.missed()


def machinery(
    database_url: str,
    *,
    executes: bool,
    lease_ms: int,
    history_bytes: int,
    clock: Clock,
    ids: IdSource,
    models: ModelCatalog,
    known_providers: Mapping[str, Provider],
    runners: Sequence[ToolRunner],
    catalog: ToolCatalog,
    tool_timeout_s: float,
    lifecycle: Mapping[str, Any] | None,
    decide: Decide,
    rules: Mapping[str, Rule],
    overseer: Overseer,
    approval_s: float,
    client_s: float,
    context: ContextProviders,
    counts_usage: Callable[[], bool],
    listeners: Sequence[Listener] = (),
) -> Machinery:
    """Put together what accepts runs, and what `executes` them; nothing is connected or started yet."""
    arguments = driver_arguments(database_url)
    store = PostgresRuns(
        arguments,
        owner=ids.new(),
        lease_ms=lease_ms,
        clock=clock,
        history_bytes=history_bytes,
        counts_usage=counts_usage,
    )
    feeds = Feeds()
    hints = PostgresHints(arguments)
    elsewhere = Elsewhere(store, hints, feeds, clock)
    acting = Acting(
        {runner.kind: runner for runner in runners},
        clock,
        ids,
        timeout_s=tool_timeout_s,
        approval_s=approval_s,
        client_s=client_s,
        waits=store,
    )
    outside = Outside(
        models=models,
        providers=known_providers,
        tools=catalog,
        acting=acting,
        overseer=overseer,
        clock=clock,
        ids=ids,
        draw=random.random,
        lifecycle=lifecycle,
        decide=decide,
        rules=rules,
        context=context,
    )
    planners: dict[str, Planner[Any]] = {
        "operate": OperatePlanner(outside),
        "act": ActPlanner(catalog, acting, overseer),
        "consensus": ConsensusPlanner(outside),
    }

    # Executor and recorder know each other: a flush that ends a run can start the next one.
    async def resume(execution: Execution) -> None:
        await runs.take_up(execution)

    async def abandon(execution: Execution) -> None:
        await lost_attempts.count(execution)
        run = execution.run
        waits = await store.settled_waits(run.id, run.epoch, close=True)
        acting.abandon(execution, await store.open_calls(run.id), waits)

    async def recover(cause: str, execution: Execution) -> None:
        await recovery.take_over(execution, cause)

    listeners = (elsewhere.committed, *listeners)
    recorder = Recorder(store, feeds, clock, lambda started: executor.take_up(started), listeners)
    beat_s = min(BEAT_S, lease_ms / 3_000)
    executor = Executor(
        store, recorder, resume, recover, abandon, clock, beat_s=beat_s, grace_s=lease_ms / 1000
    )
    runs = Runs(store, executor, feeds, elsewhere, hints, planners, clock, ids, executes=executes)
    lost_attempts = LostAttempts(store, runs.prepared, clock)
    recovery = Recovery(store, runs, lost_attempts, abandon)
    return Machinery(store, hints, elsewhere, recorder, executor, runs, feeds)


@asynccontextmanager
async def working(
    made: Machinery,
    house: Callable[[], Coroutine[Any, Any, None]],
    *,
    executes: bool,
    closing: asyncio.Event,
    grace_s: float,
) -> AsyncIterator[None]:
    """Follow, and where this process `executes` record, execute and keep `house` too, until the block
    ends; once `closing` is set nothing new.
    """

    async def retiring() -> None:
        await closing.wait()
        made.executor.retire()

    async with AsyncExitStack() as stack:
        stack.push_async_callback(made.store.close)
        for work in (made.store.open(), made.hints.work(made), made.elsewhere.work()):
            await stack.enter_async_context(background(work))
        if not executes:
            yield
            return
        for work in (
            made.recorder.work(),
            made.executor.work(),
            house(),
            retiring(),
        ):
            await stack.enter_async_context(background(work))
        yield
        await made.executor.stop(grace_s)
        await made.recorder.drain(5)
        with suppress(Unavailable):
            await made.executor.put_back()  # what the last ends have handed on, to this process of all
        made.hints.tell(Topic.WORK)  # what it leaves is for others to take up at once
        await made.hints.drain(1)
