"""`ports.quotas.Quotas` in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.audit import Audit
from app.adapters.db.session import Database, lock_project
from app.adapters.db.tables import api_keys, projects, quotas
from app.core.errors import NotFound
from app.core.limits.quota import MINUTE_S, LimitName, Owner, Quota, QuotaLimits, Standing
from app.ports.ambient import IdSource
from app.ports.quotas import Used

LIMITS: Final = tuple(QuotaLimits.model_fields)

# How far the limits of the quotas that `WHERE` chooses are used. The end of a run is told by its own row.
STANDING: Final = f"""
SELECT q.id, q.key_id IS NOT NULL AS of_key, {", ".join(f"q.{name}" for name in LIMITS)},
       coalesce(m.taken, 0) AS requests, runs.open AS runs, days.tokens, days.cost,
       ((now_minute + 1) * {MINUTE_S} - extract(epoch FROM clock_timestamp()))::float8 AS minute_s,
       extract(epoch FROM date_trunc('day', now(), 'UTC') + interval '1 day' - clock_timestamp())::float8
           AS day_s
FROM quotas q
CROSS JOIN floor(extract(epoch FROM clock_timestamp()) / {MINUTE_S}) AS now_minute
LEFT JOIN quota_minutes m ON m.quota_id = q.id AND m.minute = now_minute
CROSS JOIN LATERAL (
    SELECT count(*) AS open FROM quota_runs o JOIN runs r ON r.id = o.run_id
    WHERE o.quota_id = q.id AND r.ended_at IS NULL
) AS runs
CROSS JOIN LATERAL (
    SELECT coalesce(sum(d.tokens), 0)::bigint AS tokens, coalesce(sum(d.cost), 0) AS cost FROM quota_days d
    WHERE d.quota_id = q.id AND d.day = (now() AT TIME ZONE 'UTC')::date
) AS days"""

# What counts from before a limit is set: the attempts of the day, and the runs that have not ended.
_TODAY = "(now() AT TIME ZONE 'UTC')::date"
_FORGET_DAY = sa.text(f"DELETE FROM quota_days WHERE quota_id = :id AND day = {_TODAY}")
_COUNT_DAY = sa.text(f"""
INSERT INTO quota_days (quota_id, day, writer, tokens, cost)
SELECT :id, {_TODAY}, :id,
       coalesce(sum(a.input_tokens::bigint + a.output_tokens), 0), coalesce(sum(a.cost), 0)
FROM attempts a
WHERE a.project_id = :project AND a.ended_at >= date_trunc('day', now(), 'UTC')
  AND (CAST(:key AS uuid) IS NULL
       OR EXISTS (SELECT FROM runs r WHERE r.id = a.run_id AND r.key_id = :key))""")
# A part for each status, because each has an index of its own.
_OPEN = " UNION ALL ".join(
    f"SELECT id, project_id, key_id FROM runs WHERE status = '{status}'"
    for status in ("queued", "running", "waiting")
)
_COUNT_RUNS = sa.text(f"""
INSERT INTO quota_runs (quota_id, run_id)
SELECT :id, r.id FROM ({_OPEN}) AS r
WHERE r.project_id = :project AND (CAST(:key AS uuid) IS NULL OR r.key_id = :key)
ON CONFLICT DO NOTHING""")


_LEFT_OVER = (
    "DELETE FROM quota_days WHERE day < (now() AT TIME ZONE 'UTC')::date - 1",
    "DELETE FROM quota_minutes WHERE NOT EXISTS (SELECT FROM quotas q WHERE q.id = quota_id)",
    "DELETE FROM quota_runs WHERE NOT EXISTS (SELECT FROM runs r WHERE r.id = run_id AND r.ended_at IS NULL) "
    "OR NOT EXISTS (SELECT FROM quotas q WHERE q.id = quota_id)",
)


async def forget_counts(connection: AsyncConnection) -> None:
    """Remove counters of days that are over, of runs that have ended, and of what is limited no more."""
    for statement in _LEFT_OVER:
        await connection.execute(sa.text(statement))


class PostgresQuotas:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids
        self._audit = Audit[tuple[UUID, QuotaLimits]](
            ids,
            "limits",
            name_of=lambda thing: thing[0],
            state_of=lambda thing: thing[1].model_dump(mode="json"),
        )

    async def counts_usage(self) -> bool:
        """See the port."""
        counted = sa.or_(quotas.c.tokens_per_day.is_not(None), quotas.c.cost_per_day.is_not(None))
        async with self._database.reading() as connection:
            return bool(await connection.scalar(sa.select(sa.exists().where(counted))))

    async def used(self, project_id: UUID, key_id: UUID | None) -> Used:
        """See the port."""
        async with self._database.reading() as connection:
            await _require(connection, project_id, key_id)
            return await _used(connection, project_id, key_id)

    async def set(
        self, project_id: UUID, key_id: UUID | None, limits: QuotaLimits, *, by: UUID | None
    ) -> Used:
        """See the port."""
        quota_id = key_id or project_id
        async with self._database.writing() as connection:
            await lock_project(connection, project_id)
            await _require(connection, project_id, key_id)
            found = sa.select(quotas).where(quotas.c.id == quota_id).with_for_update(key_share=True)
            row = (await connection.execute(found)).one_or_none()
            before = QuotaLimits() if row is None else quota_of(row).limits
            if before != limits:
                await self._store(connection, quota_id, project_id, key_id, before, limits)
                was, now = ((quota_id, each) for each in (before, limits))
                await self._audit.note(connection, "update", project_id, was, now, by=by)
            return await _used(connection, project_id, key_id)

    async def _store(
        self,
        connection: AsyncConnection,
        quota_id: UUID,
        project_id: UUID,
        key_id: UUID | None,
        before: QuotaLimits,
        limits: QuotaLimits,
    ) -> None:
        if not limits.limits_anything:
            # Its counters are forgotten later.
            await connection.execute(sa.delete(quotas).where(quotas.c.id == quota_id))
            return
        values = {name: getattr(limits, name) for name in LIMITS}
        new = insert(quotas).values(id=quota_id, project_id=project_id, key_id=key_id, **values)
        changes = values | {"updated_at": sa.func.now()}
        await connection.execute(new.on_conflict_do_update(index_elements=["id"], set_=changes))
        whose = {"id": quota_id, "project": project_id, "key": key_id}
        if before.concurrent_runs is None and limits.concurrent_runs is not None:
            await connection.execute(_COUNT_RUNS, whose)
        # Not where it is counted already: then processes write the day's rows at this moment.
        if limits.counts_usage and not before.counts_usage:
            await connection.execute(_FORGET_DAY, whose)
            await connection.execute(_COUNT_DAY, whose)


async def _require(connection: AsyncConnection, project_id: UUID, key_id: UUID | None) -> None:
    there = sa.select(projects.c.id).where(projects.c.id == project_id)
    if (await connection.execute(there)).first() is None:
        raise NotFound("There is no such project.")
    ours = sa.select(api_keys.c.id).where(api_keys.c.id == key_id, api_keys.c.project_id == project_id)
    if key_id is not None and (await connection.execute(ours)).first() is None:
        raise NotFound("There is no such key in this project.")


async def _used(connection: AsyncConnection, project_id: UUID, key_id: UUID | None) -> Used:
    quota_id = key_id or project_id
    rows = (await connection.execute(sa.text(f"{STANDING} WHERE q.id = :id"), {"id": quota_id})).mappings()
    return Used(quota_id, project_id, key_id, [each for row in rows for each in standings(row)])


def standings(row: Any) -> Sequence[Standing]:
    """What a row of `STANDING` says of each limit that is set."""
    owner = Owner.KEY if row["of_key"] else Owner.PROJECT
    used: dict[LimitName, tuple[int | Decimal, float | None]] = {
        LimitName.REQUESTS: (row["requests"], row["minute_s"]),
        LimitName.RUNS: (row["runs"], None),
        LimitName.TOKENS: (row["tokens"], row["day_s"]),
        LimitName.COST: (row["cost"], row["day_s"]),
    }
    return [Standing(owner, name, row[name], *used[name]) for name in LimitName if row[name] is not None]


def quota_of(row: Any, prefix: str = "") -> Quota:
    """A row with the columns of `quotas`, their names behind a prefix."""
    names = ("id", "key_id", *LIMITS)
    found = {name: row._mapping[prefix + name] for name in names}
    owner = Owner.PROJECT if found.pop("key_id") is None else Owner.KEY
    # As they are: they were checked when they were set, and nobody is to be locked out by them now.
    return Quota(found.pop("id"), owner, QuotaLimits.model_construct(**found))
