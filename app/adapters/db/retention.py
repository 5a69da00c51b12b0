"""Drop what is kept no longer of the event log: whole weeks where nothing needs them, else run by run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import structlog
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.adapters.db.holds import sweeps_alone
from app.adapters.db.partitions import PARENTS, first_id, partitions, week_of
from app.adapters.db.purging import delete_logs, forget_purged

BATCH: Final = 200
"""Runs whose logs are removed in one transaction."""
DAY_MS: Final = 24 * 3600 * 1000
LOCK_TIMEOUT: Final = "500ms"
"""How long a drop waits for its locks, and all writers with it; below the time after which deadlocks are
looked for, so that it is the drop that gives way.
"""

_CUT: Final = "CAST(:now AS timestamptz) - make_interval(days => coalesce(p.retention_days, :days))"

# What has to stay, whatever its age: what is active or held, and what webhooks are still to be told of.
_WANTED: Final = """(
    r.ended_at IS NULL OR coalesce(b.legal_hold, false)
    OR EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.run_id = r.id AND d.status = 'pending')
)"""

_KEPT: Final = f"""
SELECT EXISTS (
    SELECT 1 FROM runs r JOIN projects p ON p.id = r.project_id LEFT JOIN branches b ON b.id = r.branch_id
    WHERE r.id >= :first AND r.id < :after
      AND (p.legal_hold OR coalesce(p.retention_days, :days) IS NULL
           OR r.ended_at >= {_CUT} OR {_WANTED}))"""

_AGED: Final = """
SELECT id, coalesce(retention_days, :days) AS days FROM projects
WHERE NOT legal_hold AND coalesce(retention_days, :days) IS NOT NULL ORDER BY id"""

# The hold and the age are looked at again, for they may have changed since the projects were listed.
_DUE: Final = f"""
SELECT r.id FROM runs r JOIN projects p ON p.id = r.project_id LEFT JOIN branches b ON b.id = r.branch_id
WHERE r.project_id = :project AND r.id > :seen AND r.id < :after
  AND NOT p.legal_hold AND NOT {_WANTED}
  AND r.ended_at < {_CUT}
  AND EXISTS (SELECT 1 FROM events e WHERE e.run_id = r.id)
ORDER BY r.id LIMIT {BATCH}"""

log = structlog.get_logger("retention")


@dataclass(slots=True)
class Swept:
    """What a sweep has removed."""

    weeks: int = 0
    """Partitions of both tables, as one."""
    runs: int = 0
    """Runs whose logs were deleted one by one."""
    purged: int = 0
    """Runs whose logs a purge had left."""


async def sweep(engine: AsyncEngine, *, now_ms: int, days: int | None) -> Swept:
    """Remove all logs that are kept no longer; `days` is the age for projects that have none of their own.

    Every step is a short transaction of its own, and one that cannot be done now is left to the next sweep.
    """
    swept = Swept()
    while True:
        async with engine.begin() as connection:
            gone = await forget_purged(connection)
        swept.purged += gone
        if not gone:
            break
    async with engine.connect() as connection:
        weeks = sorted(await partitions(connection))
    # Last week has a partition for those whose clocks are slow: it is made anew all the time.
    for week in [week for week in weeks if week < week_of(now_ms) - 1]:
        swept.weeks += await _drop_week(engine, week, now_ms=now_ms, days=days)
    if weeks:
        await _delete_aged(engine, first_id(weeks[0]), swept, now_ms=now_ms, days=days)
    if swept != Swept():
        log.info("logs removed", weeks=swept.weeks, runs=swept.runs, purged=swept.purged)
    return swept


async def _drop_week(engine: AsyncEngine, week: int, *, now_ms: int, days: int | None) -> bool:
    values = {"first": first_id(week), "after": first_id(week + 1), "now": _instant(now_ms), "days": days}
    try:
        async with engine.begin() as connection:
            if not await sweeps_alone(connection) or await connection.scalar(text(_KEPT), values):
                return False
            await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
            for parent in PARENTS:
                await connection.execute(text(f"DROP TABLE IF EXISTS {parent}_w{week}"))
    except DBAPIError as refusal:
        if getattr(refusal.orig, "sqlstate", None) not in ("55P03", "40P01"):
            raise
        log.info("a week of the log is in use; the next sweep drops it", week=week)
        return False
    return True


async def _delete_aged(
    engine: AsyncEngine, first: UUID, swept: Swept, *, now_ms: int, days: int | None
) -> None:
    async with engine.connect() as connection:
        projects = (await connection.execute(text(_AGED), {"days": days})).all()
    for project in projects:
        # No run ends before it is created, and its id says when that was.
        after = UUID(int=max(0, now_ms - project.days * DAY_MS) << 80)
        values: dict[str, Any] = {"project": project.id, "seen": first, "after": after}
        values |= {"now": _instant(now_ms), "days": days}
        while True:
            async with engine.begin() as connection:
                if not await sweeps_alone(connection):
                    return
                ids = list((await connection.scalars(text(_DUE), values)).all())
                await delete_logs(connection, ids)
            swept.runs += len(ids)
            if len(ids) < BATCH:
                break
            values["seen"] = ids[-1]


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
