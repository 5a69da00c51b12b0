"""Who may write for a run: leases, kept, lost and taken over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from app.adapters.db.columns import RUN_COLUMNS, run_record
from app.core.record import EventEntry
from app.ports.storage import Claimed, RunRecord

_TAKEN = ", ".join("r." + name for name in RUN_COLUMNS.split(", "))


def _in(status: str) -> str:
    """The condition that a run that is looked up by its id is in a status: written so that an index of all in
    that status does not seem to be of use.
    """
    return f"(r.status = '{status}') IS TRUE"


_RENEW = """
UPDATE runs r SET lease_until = now() + $3::interval
FROM unnest($1::uuid[], $2::int[]) AS w (id, epoch)
WHERE r.id = w.id AND r.epoch = w.epoch AND r.ended_at IS NULL
RETURNING r.id, r.cancel_requested_at IS NOT NULL AS cancelled"""

# Whoever gives a run up takes its own name off it.
_CLAIM = f"""
WITH due AS (
    SELECT id, owner FROM runs WHERE status = 'running' AND lease_until < now() ORDER BY lease_until LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE runs r SET epoch = r.epoch + 1, owner = $1, lease_until = now() + $2::interval
FROM due WHERE r.id = due.id
RETURNING {_TAKEN}, due.owner IS NULL AS given_up"""

# A queued run on a free branch was accepted by a process that executes none, or its hand-over was lost with
# a process. One without a branch has nothing to wait for. Branches and runs are looked up one by one, however
# many are queued.
_UNSTUCK = f"""
WITH locked AS MATERIALIZED (
    SELECT b.id FROM branches b WHERE b.id IN (
        SELECT q.branch_id FROM runs q WHERE q.status = 'queued' AND (
            SELECT a.id FROM runs a WHERE a.branch_id = q.branch_id AND a.status IN ('running', 'waiting')
        ) IS NULL)
    LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
),
next AS (
    SELECT q.id FROM locked l CROSS JOIN LATERAL (
        SELECT id FROM runs WHERE branch_id = l.id AND status = 'queued'
        ORDER BY (replaces IS NULL), id LIMIT 1
    ) AS q
),
single AS MATERIALIZED (
    SELECT id FROM runs WHERE status = 'queued' AND branch_id IS NULL ORDER BY id LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE runs r SET status = 'running', epoch = r.epoch + 1, owner = $1, lease_until = now() + $2::interval,
       started_at = $4
FROM (SELECT id FROM next UNION ALL SELECT id FROM single LIMIT $3) AS free
WHERE r.id = free.id AND {_in("queued")}
RETURNING {_TAKEN}"""

_EXPIRE = """
WITH late AS (
    SELECT id FROM runs WHERE status = 'queued' AND expires_at < $1 LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED
),
ended AS (
    UPDATE runs r SET status = 'expired', ended_at = $1, last_seq = r.last_seq + 1
    FROM late WHERE r.id = late.id RETURNING r.id, r.last_seq
)
INSERT INTO events (run_id, ts, seq, type, meta)
SELECT id, $2, last_seq, $3, $4::json FROM ended RETURNING run_id"""

# What has happened since the run was taken up is seen by looking: a decision that comes later, or a
# cancellation, marks it again. Both conditions are in the index: those that have to wait on are not visited.
_WAKE = f"""
WITH due AS (
    SELECT id FROM runs WHERE status = 'waiting'
      AND (ready_at IS NOT NULL OR wake_at <= $4)
    ORDER BY id LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE runs r SET status = 'running', epoch = r.epoch + 1, owner = $1, lease_until = now() + $2::interval,
       ready_at = NULL, wake_at = NULL
FROM due WHERE r.id = due.id
RETURNING {_TAKEN}"""


async def renew(
    connection: asyncpg.Connection[Any], leases: Mapping[UUID, int], lease: timedelta
) -> tuple[Sequence[UUID], Sequence[UUID]]:
    """See `RunStore.renew`."""
    rows = await connection.fetch(_RENEW, list(leases), list(leases.values()), lease)
    kept = {row["id"] for row in rows}
    return (
        [row["id"] for row in rows if row["cancelled"]],
        [run_id for run_id in leases if run_id not in kept],
    )


async def claim(
    connection: asyncpg.Connection[Any],
    limit: int,
    *,
    owner: UUID,
    lease: timedelta,
    now: datetime,
    lost: bool,
) -> Claimed:
    """See `RunStore.claim`; the numbers of last events are the caller's to read."""
    taken = await connection.fetch(_CLAIM, owner, lease, limit) if lost else []
    orphans = [row for row in taken if not row["given_up"]]
    given_up = [row for row in taken if row["given_up"]]
    try:
        queued = await connection.fetch(_UNSTUCK, owner, lease, limit, now)
    except asyncpg.UniqueViolationError:
        queued = []  # somebody has started a run on one of the branches meanwhile; the next look sees it
    woken = await connection.fetch(_WAKE, owner, lease, limit, now)
    groups = (orphans, given_up, queued, woken)
    return Claimed(*([run_record(row) for row in rows] for rows in groups))


async def release(connection: asyncpg.Connection[Any], leases: Mapping[UUID, int]) -> None:
    """See `RunStore.release`."""
    await connection.execute(
        "UPDATE runs r SET owner = NULL, lease_until = now() "
        "FROM unnest($1::uuid[], $2::int[]) AS w (id, epoch) "
        f"WHERE r.id = w.id AND r.epoch = w.epoch AND {_in('running')}",
        list(leases),
        list(leases.values()),
    )


async def give_back(connection: asyncpg.Connection[Any], runs: Sequence[RunRecord]) -> None:
    """See `RunStore.give_back`."""
    # A run that had waited waits again, to be taken up by the next who looks.
    await connection.execute(
        "UPDATE runs r SET status = CASE WHEN r.resume IS NULL THEN 'queued' ELSE 'waiting' END, "
        "owner = NULL, lease_until = NULL, ready_at = CASE WHEN r.resume IS NULL THEN NULL ELSE now() END, "
        "started_at = CASE WHEN r.resume IS NULL THEN NULL ELSE r.started_at END "
        "FROM unnest($1::uuid[], $2::int[]) AS w (id, epoch) "
        f"WHERE r.id = w.id AND r.epoch = w.epoch AND {_in('running')}",
        [run.id for run in runs],
        [run.epoch for run in runs],
    )


async def expire(connection: asyncpg.Connection[Any], *, at: datetime, expired: EventEntry) -> Sequence[UUID]:
    """See `RunStore.expire`."""
    rows = await connection.fetch(_EXPIRE, at, expired.ts, expired.code, expired.meta)
    return [row["run_id"] for row in rows]
