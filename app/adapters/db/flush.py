"""Write what many runs have to say in one transaction, fenced by their leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from app.adapters.db import waiting
from app.adapters.db.columns import RUN_COLUMNS, run_record
from app.adapters.db.parts import rows_of, writing
from app.ports.storage import Flush, FlushResult, NewCall, NewMessage, RunRecord


async def write(
    connection: asyncpg.Connection[Any],
    flushes: Sequence[Flush],
    *,
    owner: UUID,
    lease: timedelta,
    now: datetime,
    counting: bool = False,
) -> FlushResult:
    """Write the group; raises what asyncpg raises, and then nothing of it is written.

    `counting` says that what attempts use is counted for those who have a limit on it.
    """
    if not any(map(waiting.waits, flushes)):
        return await _write(connection, flushes, owner, lease, now, counting)
    async with connection.transaction():
        result = await _write(connection, flushes, owner, lease, now, counting)
        await waiting.write(connection, flushes, result.lost, now)
    return result


async def _write(
    connection: asyncpg.Connection[Any],
    flushes: Sequence[Flush],
    owner: UUID,
    lease: timedelta,
    now: datetime,
    counting: bool,
) -> FlushResult:
    held, parts = [(f.run_id, f.epoch) for f in flushes], rows_of(flushes, now)
    follow = (owner, lease, now) if any(f.end for f in flushes) else ()
    statement = writing(tuple(parts), alone=len(flushes) == 1, counting=counting)
    rows = await connection.fetch(statement, held, *parts.values(), *follow)
    kept = {row["fenced"] for row in rows}
    started = [run_record(row) for row in rows if follow and row["id"] is not None]
    return FlushResult(lost=[f.run_id for f in flushes if f.run_id not in kept], started=started)


_LAST = """
SELECT u.id, GREATEST(
    (SELECT max(seq) FROM events e WHERE e.run_id = u.id),
    (SELECT max(seq + count - 1) FROM token_blocks t WHERE t.run_id = u.id), 0) AS seq
FROM runs u WHERE (u.id, u.epoch) IN (SELECT * FROM unnest($1::uuid[], $2::int[]))"""

_ROWS = """
SELECT id FROM messages WHERE id = ANY($1::uuid[])
UNION ALL SELECT id FROM function_calls WHERE id = ANY($1::uuid[])"""

# Those that had queued, which has a time at which it is over: what was accepted since, on a branch that had
# come free, is begun by its acceptance.
_HELD = f"""
SELECT {RUN_COLUMNS} FROM runs
WHERE branch_id = ANY($1::uuid[]) AND status = 'running' AND owner = $2 AND NOT (id = ANY($3::uuid[]))
  AND expires_at IS NOT NULL"""


async def outcome(
    connection: asyncpg.Connection[Any], flushes: Sequence[Flush], *, owner: UUID
) -> tuple[set[UUID], list[RunRecord]]:
    """What became of a `write` whose connection broke, perhaps between commit and answer.

    The runs whose part was written, and those that it started.
    """
    last = await connection.fetch(_LAST, [f.run_id for f in flushes], [f.epoch for f in flushes])
    reached = {row["id"]: row["seq"] for row in last}
    firsts = {
        f.run_id: next((r.id for r in f.rows if isinstance(r, NewMessage | NewCall)), None) for f in flushes
    }
    found = {row["id"] for row in await connection.fetch(_ROWS, [id for id in firsts.values() if id])}
    # A flush of ends of calls alone is not looked for: written twice it changes nothing.
    written = {
        f.run_id
        for f in flushes
        if (reached.get(f.run_id, -1) >= f.entries[-1].last_seq if f.entries else firsts[f.run_id] in found)
    }
    freed = [f.branch_id for f in flushes if f.ends and f.branch_id and f.run_id in written]
    held = await connection.fetch(_HELD, freed, owner, [f.run_id for f in flushes]) if freed else []
    return written, [run_record(row) for row in held]
