"""Write what many runs have to say in one transaction, fenced by their leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import asyncpg

from app.adapters.db import approvals, attempts
from app.adapters.db.columns import RUN_COLUMNS, entry_columns, run_record, transposed
from app.ports.storage import CallEnd, Flush, FlushResult, NewCall, NewMessage, RunRecord

# A plain epoch predicate would not fence: a claim that commits while this statement waits would let the old
# writer's rows in. The share lock makes the claim wait, or makes us see its epoch.
_FENCE = """
fence AS MATERIALIZED (
    SELECT r.id FROM runs r JOIN unnest($1::uuid[], $2::int[]) AS w (id, epoch)
    ON r.id = w.id AND r.epoch = w.epoch AND r.ended_at IS NULL
    ORDER BY r.id FOR SHARE OF r
)"""

_LOG = """
logged AS (
    INSERT INTO events (run_id, ts, seq, type, stream, attempt, fallback, meta, callbacks)
    SELECT e.run_id, e.ts, e.seq, e.type, e.stream, e.attempt, e.fallback, e.meta::json, e.callbacks::json
    FROM unnest($3::uuid[], $4::bigint[], $5::int[], $6::smallint[], $7::smallint[], $8::smallint[],
                $9::smallint[], $10::text[], $11::text[])
        AS e (run_id, ts, seq, type, stream, attempt, fallback, meta, callbacks)
    JOIN fence f ON f.id = e.run_id
),
tokens AS (
    INSERT INTO token_blocks (run_id, ts, seq, count, stream, attempt, fallback, text, lengths, delays)
    SELECT t.* FROM unnest($12::uuid[], $13::bigint[], $14::int[], $15::int[], $16::smallint[],
                           $17::smallint[], $18::smallint[], $19::text[], $20::bytea[], $21::bytea[])
        AS t (run_id, ts, seq, count, stream, attempt, fallback, text, lengths, delays)
    JOIN fence f ON f.id = t.run_id
)"""

LOG_ONLY = f"WITH {_FENCE}, {_LOG} SELECT id FROM fence"

# The branch row is locked (by its update) before a run is ended: whoever decides whether a branch is busy
# takes the same lock first, so a run can neither be queued behind one that has just ended nor overtake.
FULL = f"""WITH {_FENCE}, {_LOG},
said AS MATERIALIZED (
    SELECT m.*, row_number() OVER (PARTITION BY m.branch_id ORDER BY m.ord) AS nth
    FROM unnest($22::uuid[], $23::uuid[], $24::uuid[], $25::uuid[], $26::text[], $27::text[], $28::text[],
                $29::text[], $30::uuid[], $31::timestamptz[]) WITH ORDINALITY
        AS m (id, project_id, branch_id, run_id, kind, sender, recipient, content, action_request_id,
              created_at, ord)
    JOIN fence f ON f.id = m.run_id
),
ending AS MATERIALIZED (
    SELECT e.* FROM unnest($32::uuid[], $33::uuid[], $34::text[], $35::text[], $36::text[], $37::text[],
                           $38::text[], $39::text[], $40::text[], $41::text[], $42::text[], $43::int[],
                           $44::int[], $45::int[], $46::timestamptz[])
        AS e (id, branch_id, status, result, error, validation, finish_reason, finish_reason_raw,
              partial_text, model, usage, attempts, fallback_index, last_seq, ended_at)
    JOIN fence f ON f.id = e.id
),
grown AS (
    UPDATE branches b SET next_position = b.next_position + g.n
    FROM (SELECT branch_id, sum(n)::int AS n FROM
              (SELECT branch_id, count(*) AS n FROM said GROUP BY branch_id
               UNION ALL SELECT branch_id, 0 FROM ending WHERE branch_id IS NOT NULL) AS both_kinds
          GROUP BY branch_id) AS g
    WHERE b.id = g.branch_id
    RETURNING b.id, b.next_position - g.n AS first
),
appended AS (
    INSERT INTO messages (id, project_id, branch_id, position, kind, sender, recipient, content, run_id,
                          action_request_id, created_at)
    SELECT s.id, s.project_id, s.branch_id, g.first + s.nth - 1, s.kind, s.sender, s.recipient,
           s.content::json, s.run_id, s.action_request_id, s.created_at
    FROM said s JOIN grown g ON g.id = s.branch_id
),
called AS (
    INSERT INTO function_calls (id, project_id, run_id, branch_id, call_id, attempt, batch, index, function,
                                action_request_id, arguments, raw_arguments, arguments_digest,
                                provider_call_id, created_at, started_at, status, duration, response, error,
                                retryable, ended_at, gate)
    SELECT c.id, c.project_id, c.run_id, c.branch_id, c.call_id, c.attempt, c.batch, c.index, c.function,
           c.action_request_id, c.arguments::json, c.raw_arguments::json, c.arguments_digest,
           c.provider_call_id, c.created_at, c.started_at, c.status, c.duration, c.response::json,
           c.error::json, c.retryable, c.ended_at, c.gate::json
    FROM unnest($47::uuid[], $48::uuid[], $49::uuid[], $50::uuid[], $51::uuid[], $52::smallint[], $53::int[],
                $54::int[], $55::text[], $56::uuid[], $57::text[], $58::text[], $59::text[], $60::text[],
                $61::timestamptz[], $62::timestamptz[], $63::text[], $64::float8[], $65::text[], $66::text[],
                $67::bool[], $68::timestamptz[], $77::text[])
        AS c (id, project_id, run_id, branch_id, call_id, attempt, batch, index, function, action_request_id,
              arguments, raw_arguments, arguments_digest, provider_call_id, created_at, started_at, status,
              duration, response, error, retryable, ended_at, gate)
    JOIN fence f ON f.id = c.run_id
),
answered AS (
    UPDATE function_calls c SET status = a.status, duration = a.duration, response = a.response::json,
           error = a.error::json, retryable = a.retryable, ended_at = a.ended_at
    FROM unnest($69::uuid[], $70::uuid[], $71::text[], $72::float8[], $73::text[], $74::text[], $75::bool[],
                $76::timestamptz[])
        AS a (id, run_id, status, duration, response, error, retryable, ended_at)
    JOIN fence f ON f.id = a.run_id
    WHERE c.id = a.id AND c.status IN ('pending', 'processing')
),
ended AS (
    UPDATE runs r SET status = e.status, result = e.result::json, error = e.error::json,
           validation = e.validation::json, finish_reason = e.finish_reason,
           finish_reason_raw = e.finish_reason_raw, partial_text = e.partial_text, model = e.model,
           usage = e.usage::json, attempts = e.attempts, fallback_index = e.fallback_index,
           last_seq = e.last_seq, ended_at = e.ended_at, lease_until = NULL, owner = NULL
    FROM ending e LEFT JOIN grown g ON g.id = e.branch_id
    WHERE r.id = e.id
),
{attempts.cte(78)}
SELECT id FROM fence"""

HAND_OVER = f"""
WITH next AS (
    SELECT DISTINCT ON (branch_id) id FROM runs
    WHERE branch_id = ANY($1::uuid[]) AND status = 'queued' ORDER BY branch_id, id
)
UPDATE runs r SET status = 'running', epoch = r.epoch + 1, owner = $2,
       lease_until = now() + $3::interval, started_at = $4
-- Seen again after waiting for its lock: somebody may have cancelled it, or taken it.
FROM next WHERE r.id = next.id AND r.status = 'queued'
RETURNING {", ".join("r." + name for name in RUN_COLUMNS.split(", "))}"""


def _log_columns(flushes: Sequence[Flush]) -> list[list[Any]]:
    events, blocks = entry_columns((f.run_id, f.entries) for f in flushes)
    return [[f.run_id for f in flushes], [f.epoch for f in flushes], *events, *blocks]


_MESSAGE = attrgetter("kind", "sender", "recipient", "content", "action_request_id")
_CALL = attrgetter(
    *("call_id", "attempt", "batch", "index", "function", "action_request_id", "arguments"),
    *("raw_arguments", "arguments_digest", "provider_call_id"),
)
_CALL_END = attrgetter("status", "duration", "response", "error", "retryable", "ended_at")
_RUN_END = attrgetter(
    *("id", "branch_id", "status", "result", "error", "validation", "finish_reason", "finish_reason_raw"),
    *("partial_text", "model", "usage", "attempts", "fallback_index", "last_seq", "ended_at"),
)


def _row_columns(flushes: Sequence[Flush], now: datetime) -> list[Any]:
    messages: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    call_ends: list[tuple[Any, ...]] = []
    for f in flushes:
        # A call that begins and ends in one flush is inserted as it ended: one statement does not see its
        # own inserts.
        ends = {row.id: row for row in f.rows if isinstance(row, CallEnd)}
        for row in f.rows:
            if isinstance(row, NewMessage):
                messages.append((row.id, f.project_id, f.branch_id, f.run_id, *_MESSAGE(row), now))
            elif isinstance(row, NewCall):
                end = ends.pop(row.id, None)
                place = (row.id, f.project_id, f.run_id, f.branch_id)
                state = _CALL_END(end) if end is not None else (row.status, *(None,) * 5)
                calls.append((*place, *_CALL(row), now, row.started_at, *state, row.gate))
        call_ends += [(id, f.run_id, *_CALL_END(end)) for id, end in ends.items()]
    *call_columns, gates = transposed(calls, 23)
    return [
        *transposed(messages, 10),
        *transposed([_RUN_END(f.end) for f in flushes if f.end is not None], 15),
        *call_columns,
        *transposed(call_ends, 8),
        gates,
        attempts.as_json(flushes),
    ]


async def write_first(connection: asyncpg.Connection[Any], firsts: Sequence[Flush], *, now: datetime) -> None:
    """Write what new runs begin with, in the transaction that stores the runs themselves."""
    await connection.fetch(FULL, *_log_columns(firsts), *_row_columns(firsts, now))


async def write(
    connection: asyncpg.Connection[Any],
    flushes: Sequence[Flush],
    *,
    owner: UUID,
    lease: timedelta,
    now: datetime,
) -> FlushResult:
    """Write the group; raises what asyncpg raises, and then nothing of it is written."""
    log = _log_columns(flushes)
    if not any(f.rows or f.end for f in flushes):
        kept = await connection.fetch(LOG_ONLY, *log)
        return FlushResult(lost=_missing(flushes, kept))
    everything = [*log, *_row_columns(flushes, now)]
    frees = any(f.ends and f.branch_id for f in flushes)
    waits = any(map(approvals.waits, flushes))
    if not frees and not waits:
        kept = await connection.fetch(FULL, *everything)
        return FlushResult(lost=_missing(flushes, kept))
    async with connection.transaction():
        kept = await connection.fetch(FULL, *everything)
        lost = _missing(flushes, kept)
        if waits:
            await approvals.write(connection, flushes, lost, now)
        # A second statement, because a unique index is checked row by row: in one, the next run could be
        # started before the old one has ended.
        freed = [f.branch_id for f in flushes if f.ends and f.branch_id and f.run_id not in lost]
        rows = await connection.fetch(HAND_OVER, freed, owner, lease, now) if freed else []
    started: list[RunRecord] = [run_record(row) for row in rows]
    return FlushResult(lost=lost, started=started)


_LAST = """
SELECT u.id, GREATEST(
    (SELECT max(seq) FROM events e WHERE e.run_id = u.id),
    (SELECT max(seq + count - 1) FROM token_blocks t WHERE t.run_id = u.id), 0) AS seq
FROM runs u WHERE (u.id, u.epoch) IN (SELECT * FROM unnest($1::uuid[], $2::int[]))"""

_ROWS = """
SELECT id FROM messages WHERE id = ANY($1::uuid[])
UNION ALL SELECT id FROM function_calls WHERE id = ANY($1::uuid[])"""

_HELD = f"""
SELECT {RUN_COLUMNS} FROM runs
WHERE branch_id = ANY($1::uuid[]) AND status = 'running' AND owner = $2 AND NOT (id = ANY($3::uuid[]))"""


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


def _missing(flushes: Sequence[Flush], kept: Sequence[Any]) -> list[UUID]:
    if len(kept) == len(flushes):
        return []
    ids = {row["id"] for row in kept}
    return [f.run_id for f in flushes if f.run_id not in ids]
