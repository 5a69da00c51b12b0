"""Counters of limits that have gone, or of times that are over, are forgotten; the others stay."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from app.adapters.db.engine import make_engine
from app.adapters.db.quotas import forget_counts

pytestmark = pytest.mark.anyio

PROJECT, GONE = UUID(int=1), UUID(int=2)
OPEN, ENDED = UUID(int=3), UUID(int=4)


async def test_counters_are_forgotten_when_nobody_looks_at_them_any_more(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("INSERT INTO projects (id, name) VALUES ($1, 'p')", PROJECT)
    await connection.execute(
        "INSERT INTO quotas (id, project_id, concurrent_runs) VALUES ($1, $1, 5)", PROJECT
    )
    for run, status, ended in ((OPEN, "queued", None), (ENDED, "expired", "now()")):
        await connection.execute(
            "INSERT INTO runs (id, project_id, kind, status, request, created_at, ended_at) "
            f"VALUES ($1, $2, 'act', $3, '{{}}', now(), {ended or 'NULL'})",
            run,
            PROJECT,
            status,
        )
    for quota in (PROJECT, GONE):
        await connection.execute("INSERT INTO quota_minutes VALUES ($1, 1, 5, 5, 1)", quota)
        for run in (OPEN, ENDED):
            await connection.execute("INSERT INTO quota_runs VALUES ($1, $2)", quota, run)
    for days in (0, 1, 2, 30):
        await connection.execute(
            "INSERT INTO quota_days VALUES ($1, (now() AT TIME ZONE 'UTC')::date - $2::int, $1, 1, 1)",
            PROJECT,
            days,
        )
    engine = make_engine(database_url)
    async with engine.begin() as transaction:
        await forget_counts(transaction)
    await engine.dispose()
    assert await connection.fetchval("SELECT count(*) FROM quota_days") in (1, 2)
    assert await connection.fetchval("SELECT array_agg(quota_id) FROM quota_minutes") == [PROJECT]
    rows = await connection.fetch("SELECT quota_id, run_id FROM quota_runs")
    assert [tuple(row) for row in rows] == [(PROJECT, OPEN)]
    await connection.close()
