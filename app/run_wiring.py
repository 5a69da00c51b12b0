"""Put together what executes runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.adapters.db.engine import driver_arguments
from app.adapters.db.run_store import PostgresRuns
from app.core.guardrails.base import Rule
from app.ports.ambient import Clock, IdSource
from app.ports.context import ContextProviders
from app.ports.provider import Provider
from app.ports.tool import ToolCatalog, ToolRunner
from app.services.act import Acting
from app.services.act_runs import ActPlanner
from app.services.consensus import ConsensusPlanner
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
    """Everything that executes runs."""

    store: PostgresRuns
    recorder: Recorder
    executor: Executor
    runs: Runs
    feeds: Feeds


def machinery(
    database_url: str,
    *,
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
    """Put together what executes runs; nothing is connected or started yet."""
    store = PostgresRuns(
        driver_arguments(database_url),
        owner=ids.new(),
        lease_ms=lease_ms,
        clock=clock,
        history_bytes=history_bytes,
        counts_usage=counts_usage,
    )
    feeds = Feeds()
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

    recorder = Recorder(store, feeds, clock, lambda started: executor.take_up(started), listeners)
    beat_s = min(BEAT_S, lease_ms / 3_000)
    executor = Executor(store, recorder, resume, recover, abandon, clock, beat_s=beat_s)
    runs = Runs(store, executor, feeds, planners, clock, ids)
    lost_attempts = LostAttempts(store, runs.prepared, clock)
    recovery = Recovery(store, runs, lost_attempts, abandon)
    return Machinery(store, recorder, executor, runs, feeds)
