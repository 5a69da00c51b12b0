"""What attempts use is counted in the flush that stores them: once, for those who have a limit on it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from app.adapters.db.run_store import PostgresRuns
from app.core.limits.refusal import RunLimitReached
from app.ports.storage import Accepted, NewRun
from tests.adapters.db.test_attempts import attempt
from tests.adapters.db.test_run_store import NOW, OTHER, OWNER, PROJECT, World, world

__all__ = ["world"]

pytestmark = pytest.mark.anyio

KEY = UUID(int=5)
USED = (PROJECT, NOW.date(), OWNER, 13, Decimal("0.000001"))
"""What one `attempt()` is counted as."""


async def limit(world: World, project: UUID, key: UUID | None = None, **limits: Any) -> None:
    """Set limits, a million tokens if none are named."""
    for name, value in (limits or {"tokens_per_day": 1_000_000}).items():
        await world.connection.execute(
            f"INSERT INTO quotas (id, project_id, key_id, {name}) VALUES ($1, $2, $3, $4)",
            key or project,
            project,
            key,
            value,
        )


async def counted(world: World) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await world.connection.fetch("SELECT * FROM quota_days ORDER BY 1, 2, 3")]


async def started(world: World, project: UUID = PROJECT, key: UUID | None = None) -> NewRun:
    new = world.run(await world.branch(project), project=project)
    new.run.key_id = key
    assert await world.store.accept(new) == Accepted(running=True)
    return new


async def test_an_attempt_counts_once_however_often_it_is_written(world: World) -> None:
    await limit(world, PROJECT)
    flush = world.flush(await started(world), rows=[attempt()])
    for _ in range(2):
        assert not (await world.store.flush([flush])).rejected
    assert await counted(world) == [USED]


async def test_a_flush_that_has_lost_its_run_counts_nothing(world: World) -> None:
    await limit(world, PROJECT)
    await world.store.flush([world.flush(await started(world), rows=[attempt()], epoch=0)])
    assert await counted(world) == []


@pytest.mark.parametrize("number", [1, 3, 9])
async def test_keys_and_projects_count_what_is_theirs_by_day(world: World, number: int) -> None:
    await limit(world, PROJECT, cost_per_day=Decimal(5))
    await world.connection.execute(
        "INSERT INTO api_keys (id, project_id, name, digest, prefix, scopes) "
        "VALUES ($1, $2, 'k', '', '', '{}')",
        KEY,
        PROJECT,
    )
    await limit(world, PROJECT, KEY)
    runs = [await started(world, PROJECT, KEY), await started(world), await started(world, OTHER)]
    late = NOW + timedelta(days=1)
    rows = [attempt(nth) for nth in range(number)]
    flushes = [world.flush(run, rows=[*rows, attempt(99, ended_at=late, cost=None)]) for run in runs]
    await world.store.flush(flushes)
    cost = number * USED[-1]
    assert await counted(world) == [
        (PROJECT, NOW.date(), OWNER, 2 * 13 * number, 2 * cost),
        (PROJECT, late.date(), OWNER, 2 * 13, 0),
        (KEY, NOW.date(), OWNER, 13 * number, cost),
        (KEY, late.date(), OWNER, 13, 0),
    ]


async def test_the_end_of_a_run_counts_too_and_a_process_without_a_name(world: World) -> None:
    await limit(world, PROJECT)
    new, other = await started(world), await started(world)
    await world.connection.execute("UPDATE runs SET owner = NULL WHERE id = $1", other.run.id)
    for run in (new, other):
        result = await world.store.flush([replace(world.end(run), rows=[attempt()])])
        assert not result.rejected
    assert {row[2:] for row in await counted(world)} == {(PROJECT, *USED[3:]), (OWNER, *USED[3:])}


async def test_where_nobody_has_a_limit_on_it_it_is_not_looked_for(world: World) -> None:
    await limit(world, PROJECT, concurrent_runs=5)
    await world.store.flush([world.flush(await started(world), rows=[attempt()])])
    await world.connection.execute("UPDATE quotas SET tokens_per_day = 5")
    careless = PostgresRuns(
        world.arguments, owner=OWNER, lease_ms=60_000, clock=world.clock, counts_usage=lambda: False
    )
    await careless.flush([world.flush(await started(world), rows=[attempt()])])
    assert await counted(world) == []
    await careless.close()


async def test_of_many_processes_at_the_last_runs_as_many_are_accepted_as_may_be(world: World) -> None:
    await limit(world, PROJECT, concurrent_runs=7)
    stores = [world.store, world.another(), world.another()]
    news = [
        replace(world.run(await world.branch()), quotas=(PROJECT,), idempotency=("s", str(n), b"f"))
        for n in range(30)
    ]
    outcomes = await asyncio.gather(
        *(stores[n % 3].accept(new) for n, new in enumerate(news)), return_exceptions=True
    )
    assert Counter(map(type, outcomes)) == {Accepted: 7, RunLimitReached: 23}
    # A request that was refused has not used up its idempotency key.
    refused = next(new for new, o in zip(news, outcomes, strict=True) if isinstance(o, RunLimitReached))
    accepted = next(new for new, o in zip(news, outcomes, strict=True) if isinstance(o, Accepted))
    await world.store.flush([world.end(accepted)])
    assert isinstance(await stores[1].accept(refused), Accepted)
    for store in stores[1:]:
        await store.close()
