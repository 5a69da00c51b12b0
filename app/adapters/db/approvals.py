"""Approvals: what runs that wait for a person read and write of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import sqlalchemy as sa

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.columns import transposed
from app.adapters.db.paging import page_of, sliced
from app.adapters.db.session import Database
from app.adapters.db.tables import approvals as table
from app.adapters.db.tables import projects, runs
from app.core.errors import AlreadyDecided, NotFound
from app.ports.ambient import IdSource
from app.ports.approvals import Question, Ruling
from app.ports.catalog import Once, Page, Slice
from app.ports.storage import ApprovalClosed, ApprovalRecord, CallRecord, CallStart, Flush, NewApproval

_NAMES = ", ".join(ApprovalRecord.__slots__)
_JSON = ("arguments", "edited")
_COLUMNS = tuple(
    sa.cast(table.c[name], sa.Text).label(name) if name in _JSON else table.c[name]
    for name in ApprovalRecord.__slots__
)

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

_CLOSED = """
UPDATE approvals a SET status = 'cancelled', decided_at = c.at
FROM unnest($1::uuid[], $2::timestamptz[]) AS c (function_call_id, at)
WHERE a.function_call_id = c.function_call_id AND a.status = 'pending'"""

# `ready_at` stays: a decision that came while the run was on its way to waiting has marked it.
_WAITING = """
UPDATE runs r SET resume = w.resume::json, wake_at = w.wake_at
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS w (id, resume, wake_at) WHERE r.id = w.id"""

_EXPIRED = """
UPDATE approvals SET status = 'expired', decided_at = $2
WHERE run_id = $1 AND status = 'pending' AND expires_at <= $2"""


def waits(flush: Flush) -> bool:
    """Whether the flush has anything to do with waiting."""
    if flush.end is not None and not flush.end.ended:
        return True
    return any(isinstance(row, CallStart | NewApproval | ApprovalClosed) for row in flush.rows)


async def write(
    connection: asyncpg.Connection[Any], flushes: Sequence[Flush], lost: Collection[UUID], now: datetime
) -> None:
    """Write what the flushes have to do with waiting, after everything else of them."""
    starts: list[tuple[Any, ...]] = []
    asked: list[tuple[Any, ...]] = []
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
                case ApprovalClosed():
                    closed.append((row.function_call_id, row.at))
                case NewApproval():
                    place = (row.id, f.project_id, f.run_id, row.function_call_id)
                    question = (row.function, row.arguments, row.arguments_digest, row.asked_by, row.reason)
                    asked.append((*place, *question, row.expires_at, now))
    for statement, rows, width in (
        (_STARTED, starts, 4),
        (_ASKED, asked, 11),
        (_CLOSED, closed, 2),
        (_WAITING, waiting, 3),
    ):
        if rows:
            await connection.execute(statement, *transposed(rows, width))


async def settled(
    connection: asyncpg.Connection[Any], run_id: UUID, *, at: datetime
) -> Sequence[ApprovalRecord]:
    """See `RunStore.settled_approvals`; in a transaction of the caller's."""
    await connection.execute(_EXPIRED, run_id, at)
    rows = await connection.fetch(f"SELECT {_NAMES} FROM approvals WHERE run_id = $1 ORDER BY id", run_id)
    return [ApprovalRecord(**dict(row)) for row in rows]


async def calls_of(connection: asyncpg.Connection[Any], run_id: UUID) -> Sequence[CallRecord]:
    """See `RunStore.calls_of`."""
    return [CallRecord(**dict(row)) for row in await connection.fetch(_CALLS, run_id)]


class PostgresApprovals:
    """`ports.approvals.Approvals`."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._audit = Audit[ApprovalRecord](
            ids, "approval", name_of=lambda approval: approval.function_call_id, state_of=_state
        )

    async def page(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[ApprovalRecord]:
        """See the port."""
        query = sa.select(*_COLUMNS).where(table.c.project_id == project_id)
        for name, value in filters.items():
            query = query.where(table.c[name] == value)
        async with self._database.reading() as connection:
            rows = (await connection.execute(sliced(query, table.c.id, part))).mappings().all()
        return page_of([ApprovalRecord(**row) for row in rows], part)

    async def question(self, project_id: UUID, function_call_id: UUID) -> Question:
        """See the port."""
        query = (
            sa.select(*_COLUMNS, runs.c.key_id, projects.c.self_approval)
            .join_from(table, runs, runs.c.id == table.c.run_id)
            .join(projects, projects.c.id == table.c.project_id)
            .where(table.c.project_id == project_id, table.c.function_call_id == function_call_id)
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            raise NotFound("Nobody is asked about such a function call in this project.")
        values = dict(row)
        started_by, self_approval = values.pop("key_id"), values.pop("self_approval")
        return Question(ApprovalRecord(**values), started_by, self_approval)

    async def decide(
        self,
        project_id: UUID,
        function_call_id: UUID,
        ruling: Ruling,
        *,
        at: datetime,
        once: Once | None = None,
    ) -> ApprovalRecord:
        """See the port."""
        mine = (table.c.project_id == project_id, table.c.function_call_id == function_call_id)
        change = (
            sa.update(table)
            .where(*mine, table.c.status == "pending", table.c.expires_at > at)
            .values(
                status="denied" if ruling.decision == "deny" else "approved",
                edited=sa.cast(sa.literal(ruling.arguments, sa.Text), sa.JSON),
                edited_digest=ruling.digest,
                comment=ruling.comment,
                decided_by=ruling.by,
                decided_at=at,
            )
            .returning(*_COLUMNS)
        )
        # As everybody does who writes for a run: the run's row first.
        place = sa.select(runs.c.id).join(table, table.c.run_id == runs.c.id).where(*mine)
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            await connection.execute(place.with_for_update(key_share=True, of=runs))
            row = (await connection.execute(change)).mappings().first()
            if row is None:
                raise AlreadyDecided("It was decided already, nobody is asked any more, or the time is over.")
            decided = ApprovalRecord(**row)
            asked = replace(decided, status="pending", edited_digest=None)
            # Whoever holds the run meanwhile finds the mark when it comes to wait again.
            await connection.execute(
                sa.update(runs)
                .where(runs.c.id == decided.run_id, runs.c.ended_at.is_(None))
                .values(ready_at=at)
            )
            await self._audit.note(connection, ruling.decision, project_id, asked, decided, by=ruling.by)
            await replies.keep(connection, project_id, once, decided)
        return decided


def _state(approval: ApprovalRecord) -> dict[str, Any]:
    """What counts of a decision: its word, and the arguments that it is about."""
    return {
        "status": approval.status,
        "arguments_digest": approval.edited_digest or approval.arguments_digest,
    }
