"""Read logs as they are stored: pages of entries, and how far logs go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from app.adapters.db.columns import event_entry, token_block
from app.core.record import MAX_BLOCK, Entry

# One statement for both tables, so that a block committed a moment before an event is never missed. Each of
# the two is cut by itself, so that a page does not cost more for all that follows it.
PAGE_STATEMENT = f"""
SELECT * FROM (
    SELECT *, sum(count) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM (
        (SELECT seq, ts, type, 1 AS count, stream, attempt, fallback, meta, callbacks, NULL AS text,
                NULL::bytea AS lengths, NULL::bytea AS delays
         FROM events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3)
        UNION ALL
        (SELECT seq, ts, NULL, count, stream, attempt, fallback, NULL, NULL, text, lengths, delays
         FROM token_blocks WHERE run_id = $1 AND seq > $2 - {MAX_BLOCK} AND seq + count - 1 > $2
         ORDER BY seq LIMIT $3)
        ORDER BY seq LIMIT $3
    ) AS rows
) AS counted WHERE before IS NULL OR before <= $3 + {MAX_BLOCK} ORDER BY seq"""

_LAST_SEQ = """
SELECT u.id, GREATEST(
    (SELECT max(seq) FROM events e WHERE e.run_id = u.id),
    (SELECT max(seq + count - 1) FROM token_blocks t WHERE t.run_id = u.id), 0) AS last_seq
FROM unnest($1::uuid[]) AS u (id)"""

_STANDINGS = """
SELECT r.id, r.status, CASE WHEN r.ended_at IS NOT NULL THEN r.last_seq ELSE GREATEST(
    (SELECT max(seq) FROM events e WHERE e.run_id = r.id),
    (SELECT max(seq + count - 1) FROM token_blocks t WHERE t.run_id = r.id), 0) END AS last_seq
FROM runs r WHERE r.id = ANY($1::uuid[])"""


async def page(connection: asyncpg.Connection[Any], run_id: UUID, after: int, limit: int) -> Sequence[Entry]:
    """See `RunStore.page`."""
    rows = await connection.fetch(PAGE_STATEMENT, run_id, after, limit)
    return [token_block(row).after(after) if row["type"] is None else event_entry(row) for row in rows]


async def last_seqs(connection: asyncpg.Connection[Any], runs: Sequence[UUID]) -> Mapping[UUID, int]:
    """The number of the last event of each log."""
    rows = await connection.fetch(_LAST_SEQ, runs)
    return {row["id"]: row["last_seq"] for row in rows}


async def standings(
    connection: asyncpg.Connection[Any], runs: Sequence[UUID]
) -> Mapping[UUID, tuple[int, str]]:
    """See `RunStore.standings`."""
    rows = await connection.fetch(_STANDINGS, runs)
    return {row["id"]: (row["last_seq"], row["status"]) for row in rows}
