"""Pages of runs, function calls and changes, newest first unless asked otherwise; off the hot path."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.adapters.db.columns import RUN_COLUMNS
from app.adapters.db.session import Database
from app.adapters.db.tables import (
    api_keys,
    audit_log,
    branches,
    function_calls,
    messages,
    projects,
    runs,
)
from app.core.errors import NotFound
from app.core.governance.decision import KeyFacts
from app.ports.catalog import Page, Slice
from app.ports.listings import AuditRecord, Caller
from app.ports.storage import CallRecord, RunRecord

_RUN_NAMES = RUN_COLUMNS.split(", ")
_RUN_JSON = frozenset({"request", "context", "result", "error", "validation", "usage", "resume"})
_CALL_NAMES = tuple(
    name for name in CallRecord.__slots__ if name not in ("action_response_id", "output_truncated")
)
_CALL_JSON = frozenset({"arguments", "raw_arguments", "response", "error", "gate"})


def _columns(table: sa.Table, names: Sequence[str], as_text: frozenset[str]) -> list[Any]:
    return [
        sa.cast(table.c[name], sa.Text).label(name) if name in as_text else table.c[name] for name in names
    ]


_CALLS = sa.select(
    *_columns(function_calls, _CALL_NAMES, _CALL_JSON), messages.c.id.label("action_response_id")
).outerjoin_from(function_calls, messages, messages.c.action_request_id == function_calls.c.action_request_id)


class PostgresListings:
    """`ports.storage.Listings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[sa.RowMapping]:
        async with self._database.reading() as connection:
            result = await connection.execute(statement)
            return list(result.mappings().all())

    async def runs(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[RunRecord]:
        """See the port."""
        chosen = sa.select(*_columns(runs, _RUN_NAMES, _RUN_JSON))
        rows = await self._rows(_sliced(chosen, runs, project_id, filters, part))
        found = {row["id"]: RunRecord(**dict(row)) for row in rows[: part.limit]}
        calls = await self._rows(
            sa.select(function_calls.c.run_id, function_calls.c.id)
            .where(function_calls.c.run_id.in_(list(found)))
            .order_by(*(function_calls.c[name] for name in ("run_id", "batch", "index", "attempt")))
        )
        for call in calls:
            record = found[call["run_id"]]
            record.function_calls = [*record.function_calls, call["id"]]
        return Page(list(found.values()), len(rows) > part.limit)

    async def calls(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[CallRecord]:
        """See the port."""
        rows = await self._rows(_sliced(_CALLS, function_calls, project_id, filters, part))
        return Page([CallRecord(**dict(row)) for row in rows[: part.limit]], len(rows) > part.limit)

    async def callers(self, project_id: UUID, run_ids: Collection[UUID]) -> Mapping[UUID, Caller]:
        """See the port."""
        where = runs.join(projects, projects.c.id == runs.c.project_id)
        where = where.outerjoin(branches, branches.c.id == runs.c.branch_id)
        where = where.outerjoin(api_keys, api_keys.c.id == runs.c.key_id)
        chosen = sa.select(
            runs.c.id,
            projects.c.name.label("project"),
            branches.c.name.label("branch"),
            branches.c.metadata,
            api_keys.c.id.label("key_id"),
            api_keys.c.name.label("key_name"),
            api_keys.c.scopes,
        ).select_from(where)
        rows = await self._rows(chosen.where(runs.c.project_id == project_id, runs.c.id.in_(list(run_ids))))
        return {row["id"]: _caller(row) for row in rows}

    async def audit(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[AuditRecord]:
        """See the port."""
        rows = await self._rows(_sliced(sa.select(audit_log), audit_log, project_id, filters, part))
        return Page([AuditRecord(**dict(row)) for row in rows[: part.limit]], len(rows) > part.limit)

    async def call(self, project_id: UUID, id: UUID) -> CallRecord:
        """See the port."""
        rows = await self._rows(
            _CALLS.where(function_calls.c.project_id == project_id, function_calls.c.id == id)
        )
        if not rows:
            raise NotFound("There is no such function call in this project.")
        return CallRecord(**dict(rows[0]))


def _caller(row: sa.RowMapping) -> Caller:
    key = row["key_id"] and KeyFacts(row["key_id"], row["key_name"], row["scopes"])
    return Caller(row["project"], row["branch"], row["metadata"] or {}, key)


def _sliced(
    statement: sa.Select[Any], table: sa.Table, project_id: UUID, filters: Mapping[str, Any], part: Slice
) -> sa.Select[Any]:
    """One row more than asked for, to see whether something follows."""
    id = table.c.id
    statement = statement.where(table.c.project_id == project_id)
    for name, value in filters.items():
        statement = statement.where(table.c[name] == value)
    if part.after is not None:
        statement = statement.where(id < part.after if part.descending else id > part.after)
    return statement.order_by(id.desc() if part.descending else id).limit(part.limit + 1)
