"""Approvals: what people are asked, and what they decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.paging import page_of, sliced
from app.adapters.db.session import Database
from app.adapters.db.tables import approvals as table
from app.adapters.db.tables import projects, runs
from app.core.errors import AlreadyDecided, NotFound
from app.ports.ambient import IdSource
from app.ports.approvals import Question, Ruling
from app.ports.catalog import Once, Page, Slice
from app.ports.waiting import ApprovalRecord

_JSON = ("arguments", "edited")
_COLUMNS = tuple(
    sa.cast(table.c[name], sa.Text).label(name) if name in _JSON else table.c[name]
    for name in ApprovalRecord.__slots__
)


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
