"""Composition root: the only module that knows everyone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.adapters.db.engine import driver_arguments
from app.adapters.db.migrate import migrate
from app.adapters.db.partitions import ensure_partitions
from app.adapters.db.run_store import PostgresRuns
from app.adapters.providers.openai import OpenAIProvider
from app.adapters.providers.scripted import ScriptedProvider
from app.adapters.tools.python import PythonTools
from app.ports.ambient import Clock, IdSource
from app.ports.provider import Provider
from app.ports.tool import ToolCatalog, ToolSpec
from app.services.act import Acting
from app.services.act_runs import ActPlanner
from app.services.execution import Execution
from app.services.executor import Executor
from app.services.feed import Feeds
from app.services.operate import ModelCatalog, OperatePlanner, Outside
from app.services.plan import Planner
from app.services.recorder import Recorder
from app.services.runs import Runs

TOOL_TIMEOUT_S = 600.0
"""Longest that one tool call may take, whatever its caller says."""
PARTITION_PERIOD_S = 3600.0
GRACE_S = 10.0
"""How long running runs may go on after the service was told to stop."""

log = structlog.get_logger("wiring")


class PythonCatalog:
    """`ports.tool.ToolCatalog` of the Python tools, which every project has."""

    def __init__(self, tools: PythonTools) -> None:
        self._specs = tools.specs

    async def tools(self, project_id: UUID) -> Mapping[str, ToolSpec]:
        """See the port."""
        return self._specs


@dataclass(frozen=True, slots=True)
class Machinery:
    """Everything that executes runs."""

    store: PostgresRuns
    recorder: Recorder
    executor: Executor
    runs: Runs
    feeds: Feeds


def providers(client: httpx.AsyncClient) -> dict[str, Provider]:
    """Every wire format by name."""
    known: tuple[Provider, ...] = (OpenAIProvider(client), ScriptedProvider())
    return {provider.name: provider for provider in known}


def machinery(
    database_url: str,
    *,
    lease_ms: int,
    clock: Clock,
    ids: IdSource,
    models: ModelCatalog,
    known_providers: Mapping[str, Provider],
    tools: PythonTools,
    catalog: ToolCatalog,
    lifecycle: Mapping[str, Any] | None,
) -> Machinery:
    """Put together what executes runs; nothing is connected or started yet."""
    store = PostgresRuns(driver_arguments(database_url), owner=ids.new(), lease_ms=lease_ms, clock=clock)
    feeds = Feeds()
    acting = Acting({tools.kind: tools}, clock, ids, timeout_s=TOOL_TIMEOUT_S)
    outside = Outside(models, known_providers, catalog, acting, clock, ids, random.random, lifecycle)
    planners: dict[str, Planner[Any]] = {
        "operate": OperatePlanner(outside),
        "act": ActPlanner(catalog, acting),
    }

    # Executor and recorder know each other: a flush that ends a run can start the next one.
    async def resume(execution: Execution) -> None:
        plan = await runs.resume(execution.run)
        await plan.start(execution)

    async def abandon(execution: Execution) -> None:
        acting.abandon(execution, await store.open_calls(execution.run.id))

    recorder = Recorder(store, feeds, clock, lambda started: executor.take_up(started))
    executor = Executor(store, recorder, resume, abandon)
    runs = Runs(store, executor, feeds, planners, clock, ids)
    return Machinery(store, recorder, executor, runs, feeds)


@asynccontextmanager
async def working(made: Machinery, engine: AsyncEngine, clock: Clock) -> AsyncIterator[None]:
    """Migrate, then record, execute and keep partitions ahead, until the block ends."""
    await migrate(engine, now_ms=clock.wall_ms())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(made.store.close)
        for work in (made.recorder.work(), made.executor.work(), _keep_partitions(engine, clock)):
            stack.push_async_callback(_ended, asyncio.create_task(_loud(work)))
        yield
        await made.executor.stop(GRACE_S)
        await made.recorder.drain(5)


async def _loud(work: Coroutine[Any, Any, None]) -> None:
    """Background work must not die in silence."""
    try:
        await work
    except Exception:
        log.exception("background work ended")
        raise


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _keep_partitions(engine: AsyncEngine, clock: Clock) -> None:
    while True:
        await asyncio.sleep(PARTITION_PERIOD_S)
        try:
            async with engine.begin() as connection:
                await ensure_partitions(connection, now_ms=clock.wall_ms())
        except Exception:
            log.exception("partitions could not be made; the next try follows")
