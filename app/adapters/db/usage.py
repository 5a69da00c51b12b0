"""`ports.usage.UsageReports` in Postgres; off the hot path."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.adapters.db.attempts import new_attempt
from app.adapters.db.session import Database
from app.adapters.db.tables import attempts, runs
from app.core.errors import NotFound
from app.core.usage.totals import Totals
from app.ports.attempts import NewAttempt
from app.ports.catalog import Page, Slice
from app.ports.usage import GroupBy, Span, UsageSum

_T = attempts.c

# One order whatever the database's collation is: that of the code points.
_KEYS: dict[GroupBy, sa.ColumnElement[str]] = {
    "project": sa.literal_column("''"),
    "day": sa.func.to_char(sa.func.timezone("UTC", _T.ended_at), "YYYY-MM-DD"),
    "model": sa.func.coalesce(_T.model, ""),
    "branch": sa.func.coalesce(sa.cast(_T.branch_id, sa.Text), ""),
    "run": sa.cast(_T.run_id, sa.Text),
}


def _sum(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.cast(sa.func.coalesce(sa.func.sum(column), 0), sa.BigInteger).label(column.key)


_SUMS = (
    sa.func.count(sa.distinct(_T.run_id)).label("runs"),
    sa.func.count().label("attempts"),
    sa.func.count().filter(_T.estimated).label("estimated_attempts"),
    *(_sum(_T[name]) for name in ("input_tokens", "output_tokens", "cached_input_tokens")),
    *(_sum(_T[name]) for name in ("cache_write_tokens", "reasoning_tokens")),
    sa.func.bool_or(_T.reported).label("reported"),
    sa.func.bool_or(_T.estimated).label("estimated"),
    sa.func.sum(_T.cost).label("amount"),
    (sa.func.count() - sa.func.count(_T.cost)).label("unpriced"),
)


class PostgresUsage:
    """See the port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def attempts(self, project_id: UUID, run_id: UUID) -> Sequence[NewAttempt]:
        """See the port."""
        own = sa.select(runs.c.id).where(runs.c.project_id == project_id, runs.c.id == run_id)
        chosen = sa.select(attempts).where(_T.run_id == run_id)
        chosen = chosen.order_by(_T.ended_at, _T.stream, _T.fallback_index, _T.attempt)
        async with self._database.reading() as connection:
            if (await connection.execute(own)).one_or_none() is None:
                raise NotFound("There is no such run in this project.")
            return [new_attempt(row) for row in (await connection.execute(chosen)).mappings()]

    async def sums(self, project_id: UUID, group_by: GroupBy, span: Span, part: Slice) -> Page[UsageSum]:
        """See the port."""
        key = sa.collate(_KEYS[group_by], "C")
        chosen = sa.select(key.label("key"), *_SUMS).where(
            _T.project_id == project_id,
            _T.ended_at >= _start(span.first),
            _T.ended_at < _start(span.last + timedelta(days=1)),
        )
        if span.branch_id is not None:
            chosen = chosen.where(_T.branch_id == span.branch_id)
        if part.after is not None:
            chosen = chosen.where(key < part.after if part.descending else key > part.after)
        chosen = chosen.group_by(sa.literal_column("key")).limit(part.limit + 1)
        chosen = chosen.order_by(
            sa.literal_column("key").desc() if part.descending else sa.literal_column("key")
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(chosen)).mappings().all()
        return Page([_found(row) for row in rows[: part.limit]], len(rows) > part.limit)


def _start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _found(row: sa.RowMapping) -> UsageSum:
    values = dict(row)
    key, ran, estimated = (values.pop(name) for name in ("key", "runs", "estimated_attempts"))
    return UsageSum(key, ran, estimated, Totals(**values))
