"""What runs that wait write of it, and read when they go on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from app.adapters.db.columns import transposed
from app.ports.storage import CallRecord, CallStart, Flush
from app.ports.waiting import ApprovalRecord, ClientCallRecord, NewApproval, NewClientCall, WaitClosed, Waits

# The member that says so is the last of a response's content, and left out otherwise.
_OF_RESPONSE = {
    "action_response_id": "m.id AS action_response_id",
    "output_truncated": """coalesce(m.content::text LIKE '%,"output_truncated":true}', false)"""
    " AS output_truncated",
}
_CALL_NAMES = ", ".join(_OF_RESPONSE.get(name, f"c.{name}") for name in CallRecord.__slots__)
_CALLS = f"""
SELECT {_CALL_NAMES} FROM function_calls c LEFT JOIN messages m ON m.action_request_id = c.action_request_id
WHERE c.run_id = $1 ORDER BY c.batch, c.index, c.attempt"""

_STARTED = """
UPDATE function_calls c SET status = 'processing', arguments = s.arguments::json,
       arguments_digest = s.arguments_digest, started_at = s.started_at
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[])
    AS s (id, arguments, arguments_digest, started_at)
WHERE c.id = s.id AND c.status = 'pending'"""

_ASKED = """
INSERT INTO approvals (id, project_id, run_id, function_call_id, function, arguments, arguments_digest,
                       asked_by, reason, status, created_at, expires_at)
SELECT a.id, a.project_id, a.run_id, a.function_call_id, a.function, a.arguments::json, a.arguments_digest,
       a.asked_by, a.reason, 'pending', a.created_at, a.expires_at
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::timestamptz[], $11::timestamptz[])
    AS a (id, project_id, run_id, function_call_id, function, arguments, arguments_digest, asked_by, reason,
          expires_at, created_at)"""

_HANDED_OVER = """
WITH handed AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::smallint[],
                         $7::text[], $8::text[], $9::text[], $10::float8[], $11::timestamptz[],
                         $12::timestamptz[])
        AS h (function_call_id, project_id, run_id, branch_id, call_id, attempt, function, arguments,
              arguments_digest, lease_s, expires_at, created_at)
),
pending AS (
    UPDATE function_calls c SET status = 'pending' FROM handed h
    WHERE c.id = h.function_call_id AND c.status = 'processing'
)
INSERT INTO client_calls (function_call_id, project_id, run_id, branch_id, call_id, attempt, function,
                          arguments, arguments_digest, status, lease_s, expires_at, created_at)
SELECT function_call_id, project_id, run_id, branch_id, call_id, attempt, function, arguments::json,
       arguments_digest, 'waiting', lease_s, expires_at, created_at
FROM handed
ON CONFLICT DO NOTHING"""  # A flush whose answer was lost may come twice.

# Those that wait have no end; told by their status they would be looked for among all that wait.
_CLOSED = """
WITH closed AS (SELECT * FROM unnest($1::uuid[], $2::timestamptz[]) AS c (function_call_id, at)),
handed AS (
    UPDATE client_calls h SET status = 'cancelled', ended_at = c.at
    FROM closed c WHERE h.function_call_id = c.function_call_id AND h.ended_at IS NULL
)
UPDATE approvals a SET status = 'cancelled', decided_at = c.at
FROM closed c WHERE a.function_call_id = c.function_call_id AND a.status = 'pending'"""

# `ready_at` stays: an answer that came while the run was on its way to waiting has marked it.
_WAITING = """
UPDATE runs r SET resume = w.resume::json, wake_at = w.wake_at
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS w (id, resume, wake_at) WHERE r.id = w.id"""

_HELD = "SELECT true FROM runs WHERE id = $1 AND epoch = $2 FOR SHARE"

_SETTLED = """
WITH undecided AS (
    UPDATE approvals SET status = 'expired', decided_at = $2
    WHERE run_id = $1 AND status = 'pending' AND expires_at <= $2
)
UPDATE client_calls
SET status = CASE WHEN expires_at <= $2 THEN 'expired' ELSE 'cancelled' END, ended_at = $2
WHERE run_id = $1 AND ended_at IS NULL AND (expires_at <= $2 OR $3)"""

_APPROVALS = f"SELECT {', '.join(ApprovalRecord.__slots__)} FROM approvals WHERE run_id = $1 ORDER BY id"
_CLIENT_CALLS = f"""
SELECT {", ".join(ClientCallRecord.__slots__)} FROM client_calls
WHERE run_id = $1 ORDER BY function_call_id"""


def waits(flush: Flush) -> bool:
    """Whether the flush has anything to do with waiting."""
    if flush.end is not None and not flush.end.ended:
        return True
    return any(isinstance(row, CallStart | NewApproval | NewClientCall | WaitClosed) for row in flush.rows)


async def write(
    connection: asyncpg.Connection[Any], flushes: Sequence[Flush], lost: Collection[UUID], now: datetime
) -> None:
    """Write what the flushes have to do with waiting, after everything else of them."""
    starts: list[tuple[Any, ...]] = []
    asked: list[tuple[Any, ...]] = []
    handed: list[tuple[Any, ...]] = []
    closed: list[tuple[Any, ...]] = []
    waiting: list[tuple[Any, ...]] = []
    for f in flushes:
        if f.run_id in lost:
            continue
        if f.end is not None and not f.end.ended:
            waiting.append((f.run_id, f.end.resume, f.end.wake_at))
        for row in f.rows:
            match row:
                case CallStart():
                    starts.append((row.id, row.arguments, row.arguments_digest, row.started_at))
                case WaitClosed():
                    closed.append((row.function_call_id, row.at))
                case NewApproval():
                    place = (row.id, f.project_id, f.run_id, row.function_call_id)
                    question = (row.function, row.arguments, row.arguments_digest, row.asked_by, row.reason)
                    asked.append((*place, *question, row.expires_at, now))
                case NewClientCall():
                    whose = (row.function_call_id, f.project_id, f.run_id, f.branch_id)
                    call = (row.call_id, row.attempt, row.function, row.arguments, row.arguments_digest)
                    handed.append((*whose, *call, row.lease_s, row.expires_at, row.created_at))
    for statement, rows in (
        (_STARTED, starts),
        (_ASKED, asked),
        (_HANDED_OVER, handed),
        (_CLOSED, closed),
        (_WAITING, waiting),
    ):
        if rows:
            await connection.execute(statement, *transposed(rows))


async def settled(
    connection: asyncpg.Connection[Any], run_id: UUID, epoch: int, *, at: datetime, close: bool
) -> Waits:
    """See `WaitStore.settled_waits`; in a transaction of the caller's."""
    # The run's row first, as everybody does who writes for it.
    closes = close and await connection.fetchval(_HELD, run_id, epoch) is not None
    await connection.execute(_SETTLED, run_id, at, closes)
    approvals = await connection.fetch(_APPROVALS, run_id)
    client_calls = await connection.fetch(_CLIENT_CALLS, run_id)
    return Waits(
        [ApprovalRecord(**dict(row)) for row in approvals],
        [ClientCallRecord(**dict(row)) for row in client_calls],
    )


async def calls_of(connection: asyncpg.Connection[Any], run_id: UUID) -> Sequence[CallRecord]:
    """See `RunStore.calls_of`."""
    return [CallRecord(**dict(row)) for row in await connection.fetch(_CALLS, run_id)]
