"""A sweep leaves exactly the logs that are still wanted, whatever there is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.adapters.db.engine import make_engine
from app.adapters.db.partitions import WEEK_MS, make_partitions, week_of
from app.adapters.db.retention import sweep
from tests.support.ambient import NOW_MS

pytestmark = pytest.mark.anyio

WEEKS = 12
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Run:
    """What decides about a log."""

    id: UUID
    project: int
    branch: int | None
    created: datetime
    ended: datetime | None
    owed: bool
    """Whether an endpoint is still to be told of it."""


@dataclass(frozen=True, slots=True)
class World:
    """Projects with their ages and holds, branches with theirs, and runs."""

    ages: list[int | None]
    projects_held: list[bool]
    branches_held: list[bool]
    runs: list[Run]

    def wanted(self, run: Run, days: int | None) -> bool:
        """Whether the log has to stay."""
        age = self.ages[run.project] or days
        held = self.projects_held[run.project] or (run.branch is not None and self.branches_held[run.branch])
        if run.ended is None or held or run.owed or age is None:
            return True
        return run.ended >= NOW - timedelta(days=age)


def some_world(random: Random) -> World:
    projects = random.randint(1, 3)
    branches = random.randint(1, 6)
    calm = random.random() < 0.3  # so that whole weeks are free now and then
    runs = []
    for _ in range(random.randint(5, 60)):
        ms = NOW_MS - random.randint(0, (WEEKS - 1) * WEEK_MS)
        noise = uuid4().int & ((1 << 74) - 1)
        id = UUID(int=ms << 80 | 7 << 76 | (noise >> 62) << 64 | 2 << 62 | (noise & ((1 << 62) - 1)))
        created = datetime.fromtimestamp(ms / 1000, UTC)
        live = not calm and random.random() < 0.1
        took = timedelta(seconds=random.randint(0, 20 * 24 * 3600))
        runs.append(
            Run(
                id,
                random.randrange(projects),
                random.choice((None, random.randrange(branches))),
                created,
                None if live else min(created + took, NOW),
                owed=not calm and random.random() < 0.1,
            )
        )
    return World(
        [random.choice((None, 1, 10, 40)) for _ in range(projects)],
        [not calm and random.random() < 0.2 for _ in range(projects)],
        [not calm and random.random() < 0.3 for _ in range(branches)],
        runs,
    )


async def put(connection: asyncpg.Connection[asyncpg.Record], world: World) -> None:
    projects = [uuid4() for _ in world.ages]
    for id, age, held in zip(projects, world.ages, world.projects_held, strict=True):
        await connection.execute(
            "INSERT INTO projects (id, name, retention_days, legal_hold) VALUES ($1, $2, $3, $4)",
            *(id, str(id), age, held),
        )
    branches: dict[tuple[int, int], UUID] = {}
    for run in world.runs:
        branch = None
        if run.branch is not None:
            at = (run.project, run.branch)
            if at not in branches:
                branches[at] = uuid4()
                await connection.execute(
                    "INSERT INTO branches (id, project_id, legal_hold) VALUES ($1, $2, $3)",
                    *(branches[at], projects[run.project], world.branches_held[run.branch]),
                )
            branch = branches[at]
        status = "completed" if run.ended else "queued"
        await connection.execute(
            "INSERT INTO runs (id, project_id, branch_id, kind, status, request, created_at, ended_at, "
            "last_seq) VALUES ($1, $2, $3, 'act', $4, '{}', $5, $6, 3)",
            *(run.id, projects[run.project], branch, status, run.created, run.ended),
        )
        await connection.execute(
            "INSERT INTO events (run_id, ts, seq, type) VALUES ($1, 1, 1, 260), ($1, 2, 3, 264)", run.id
        )
        await connection.execute(
            "INSERT INTO token_blocks VALUES ($1, 1, 2, 1, 0, 1, 0, 'a', '\\x01', '\\x00')", run.id
        )
        if run.owed:
            await connection.execute(
                "INSERT INTO webhook_deliveries (endpoint_id, run_id, project_id) VALUES ($1, $2, $3)",
                *(uuid4(), run.id, projects[run.project]),
            )


@pytest.mark.parametrize("seed", range(12))
async def test_exactly_what_is_wanted_stays(database_url: str, seed: int) -> None:
    random = Random(seed)
    world, days = some_world(random), random.choice((None, 5, 30))
    engine = make_engine(database_url)
    this = week_of(NOW_MS)
    async with engine.begin() as maker:
        await make_partitions(maker, range(this - WEEKS, this + 1))
    connection = await asyncpg.connect(database_url)
    await put(connection, world)
    await sweep(engine, now_ms=NOW_MS, days=days)
    wanted = {run.id for run in world.runs if world.wanted(run, days)}
    for table in ("events", "token_blocks"):
        rows = await connection.fetch(f"SELECT run_id, count(*) AS n FROM {table} GROUP BY run_id")
        assert {row["run_id"] for row in rows} == wanted
        assert all(row["n"] == (2 if table == "events" else 1) for row in rows)
    assert await connection.fetchval("SELECT count(*) FROM runs") == len(world.runs)
    again = await sweep(engine, now_ms=NOW_MS, days=days)
    assert (again.weeks, again.runs, again.purged) == (0, 0, 0)
    await connection.close()
    await engine.dispose()
