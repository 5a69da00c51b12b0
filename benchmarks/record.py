"""What the service has stored: counted, weighed, and held against what it told its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from benchmarks.client import LoadFailed

_STORED = """
SELECT (SELECT count(*) FROM runs) AS runs,
       (SELECT coalesce(sum(count), 0) FROM token_blocks)::bigint AS tokens,
       (SELECT coalesce(sum(octet_length(text)), 0) FROM token_blocks)::bigint AS text_bytes,
       (SELECT id FROM runs ORDER BY id DESC LIMIT 1) AS last_run"""

# Main forks alone: a vacuum in between adds a free space map, which says nothing of the rows.
_WEIGHT = """
WITH ours AS (
    SELECT c.oid, c.reltoastrelid, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind = 'r'
),
tables AS (
    SELECT oid, relname FROM ours UNION ALL
    SELECT reltoastrelid, relname FROM ours WHERE reltoastrelid <> 0
),
weights AS (
    SELECT relname, pg_relation_size(oid) + coalesce(
        (SELECT sum(pg_relation_size(i.indexrelid)) FROM pg_index i WHERE i.indrelid = t.oid), 0) AS bytes
    FROM tables t
)
SELECT sum(bytes)::bigint AS bytes,
       coalesce(sum(bytes) FILTER (WHERE relname LIKE 'token_blocks%'), 0)::bigint AS block_bytes
FROM weights"""

_BROKEN = """
SELECT count(*) FROM runs r,
    LATERAL (SELECT count(*) AS n, coalesce(max(seq), 0) AS last FROM events WHERE run_id = r.id) AS e,
    LATERAL (SELECT coalesce(sum(count), 0) AS n, coalesce(max(seq + count - 1), 0) AS last
             FROM token_blocks WHERE run_id = r.id) AS t
WHERE r.id > $1 AND (r.status <> 'completed' OR e.n + t.n <> r.last_seq
                     OR greatest(e.last, t.last) <> r.last_seq)"""

_NO_RUN = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Stored:
    """Totals of everything that is stored."""

    runs: int
    tokens: int
    text_bytes: int
    bytes: int
    """Tables, their indexes and what they keep out of line."""
    block_bytes: int
    """The same of the token blocks alone."""
    last_run: UUID

    def since(self, before: Stored) -> Stored:
        """What came in between."""
        return Stored(
            self.runs - before.runs,
            self.tokens - before.tokens,
            self.text_bytes - before.text_bytes,
            self.bytes - before.bytes,
            self.block_bytes - before.block_bytes,
            self.last_run,
        )


async def stored(connection: asyncpg.Connection[Any]) -> Stored:
    """The totals now."""
    told = await connection.fetchrow(_STORED)
    weight = await connection.fetchrow(_WEIGHT)
    assert told is not None
    assert weight is not None
    return Stored(
        told["runs"],
        told["tokens"],
        told["text_bytes"],
        weight["bytes"],
        weight["block_bytes"],
        told["last_run"] or _NO_RUN,
    )


async def check_logs(connection: asyncpg.Connection[Any], after: Stored) -> None:
    """Raise LoadFailed unless each run since then completed, with every event of its log stored once."""
    broken = await connection.fetchval(_BROKEN, after.last_run)
    if broken:
        raise LoadFailed(f"{broken} runs did not complete, or their logs have gaps")
