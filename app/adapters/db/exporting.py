"""`ports.transfer.ExportReader` in Postgres, which writes the lines itself: JSON stays as it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from app.adapters.db import engine
from app.adapters.db.lane import Lane
from app.core.errors import BranchBusy, NotFound
from app.core.transfer.lines import (
    ApprovalLine,
    AttemptLine,
    BranchLine,
    CallLine,
    ClientCallLine,
    Line,
    MessageLine,
    RunLine,
)
from app.ports.ambient import IdSource
from app.ports.transfer import Mark, Told

PAGE_BYTES: Final = 2 * 1024 * 1024
"""After so many stored bytes a page ends, whatever was asked for; the last row may go over it."""

_CAST: Final = {"cost": "cost::text AS cost"}
"""A number with more digits than a double has is told as text."""


def _line(kind: type[Line]) -> str:
    """A subquery for rows as lines; `row_to_json` keeps what is stored as `json` as it was written."""
    name = kind.model_fields["object"].annotation.__args__[0]  # type: ignore[union-attr]
    columns = ", ".join(_CAST.get(column, column) for column in kind.columns())
    # An end of line between two members would be JSON as well, and end the line.
    told = "replace(row_to_json(line)::text, E'\\n', ' ')"
    return f"SELECT {told} FROM (SELECT '{name}' AS object, {columns}) AS line"


_MARK: Final = f"""
SELECT next_position, ({_line(BranchLine)}) AS line,
       EXISTS (SELECT 1 FROM runs WHERE branch_id = b.id AND ended_at IS NULL) AS busy,
       (SELECT id FROM runs WHERE branch_id = b.id ORDER BY id DESC LIMIT 1) AS last_run,
       (SELECT max(ended_at) FROM runs WHERE branch_id = b.id) AS last_end
FROM branches b WHERE id = $1 AND project_id = $2"""

# As one comparison, which an index can begin a page with: whether there is a place to go on from is not known
# when the statement is planned.
_LATER: Final = "id > coalesce($2, '00000000-0000-0000-0000-000000000000'::uuid)"

_BRANCHES: Final = f"""
SELECT id FROM branches WHERE project_id = $1 AND {_LATER} ORDER BY id LIMIT $3"""


def _page(kind: type[Line], key: str, where: str, limit: str, *, more: str = "") -> str:
    """Rows of a page, cut short where they are large; what is stored out of line is not read to see that."""
    size = " + ".join(f"coalesce(pg_column_size({name}), 0)" for name in sorted(kind.json_columns))
    return f"""
SELECT {key} AS place{more}, ({_line(kind)}) AS line FROM (
    SELECT *, sum({size}) OVER (ORDER BY {key} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM (SELECT * FROM {kind.table} WHERE {where} ORDER BY {key} LIMIT {limit}) AS found
) AS weighed WHERE before IS NULL OR before < {PAGE_BYTES} ORDER BY {key}"""


_MESSAGES: Final = _page(MessageLine, "position", "branch_id = $1 AND position > $2 AND position < $3", "$4")

# What was accepted since has a later id or, where clocks differ, at least a later end.
_RUNS: Final = _page(
    RunLine,
    "id",
    f"branch_id = $1 AND {_LATER} AND id <= $3 AND ended_at <= $4",
    "$5",
    more=", last_seq",
)
_LONE_RUNS: Final = _page(
    RunLine,
    "id",
    f"project_id = $1 AND branch_id IS NULL AND {_LATER} AND ended_at IS NOT NULL",
    "$3",
    more=", last_seq",
)
_CALLS: Final = _page(CallLine, "id", f"run_id = $1 AND {_LATER}", "$3")

_BELONGINGS: Final = f"""
SELECT ({_line(AttemptLine)}) AS line FROM attempts WHERE run_id = $1
UNION ALL SELECT ({_line(ApprovalLine)}) FROM approvals WHERE run_id = $1
UNION ALL SELECT ({_line(ClientCallLine)}) FROM client_calls WHERE run_id = $1"""

_NOTE: Final = """
INSERT INTO audit_log (id, project_id, key_id, action, subject) VALUES ($1, $2, $3, $4, $5)"""


class PostgresExports:
    """See the port."""

    def __init__(self, arguments: dict[str, Any], ids: IdSource) -> None:
        """`arguments` are those of `asyncpg.connect`; the one connection is free between any two pages."""
        self._lane = Lane(arguments)
        self._ids = ids

    async def close(self) -> None:
        """Close the connection."""
        await self._lane.close()

    async def note(self, project_id: UUID, subject: str, *, by: UUID | None) -> None:
        """See the port."""
        action = subject.partition(":")[0] + ".export"
        async with self._lane.use(wait_s=engine.POOL_WAIT_S) as connection:
            await connection.execute(_NOTE, self._ids.new(), project_id, by, action, subject)

    async def mark(self, project_id: UUID, branch_id: UUID, *, first: bool = False) -> Mark:
        """See the port."""
        async with self._lane.use(wait_s=engine.POOL_WAIT_S if first else None) as connection:
            row = await connection.fetchrow(_MARK, branch_id, project_id)
        if row is None:
            raise NotFound("There is no such branch in this project.")
        if row["busy"]:
            raise BranchBusy("A run is active or queued on this branch; wait for its end, or cancel it.")
        return Mark(branch_id, row["line"].encode(), row["next_position"], row["last_run"], row["last_end"])

    async def branches(self, project_id: UUID, *, after: UUID | None, limit: int) -> Sequence[UUID]:
        """See the port."""
        return [row["id"] for row in await self._fetch(_BRANCHES, project_id, after, limit)]

    async def messages(self, mark: Mark, *, after: int, limit: int) -> Sequence[Told]:
        """See the port."""
        return _told(await self._fetch(_MESSAGES, mark.branch_id, after, mark.next_position, limit))

    async def runs(self, mark: Mark, *, after: UUID | None, limit: int) -> Sequence[Told]:
        """See the port."""
        if mark.last_run is None:
            return []
        return _told(
            await self._fetch(_RUNS, mark.branch_id, after, mark.last_run, mark.last_end, limit), runs=True
        )

    async def lone_runs(self, project_id: UUID, *, after: UUID | None, limit: int) -> Sequence[Told]:
        """See the port."""
        return _told(await self._fetch(_LONE_RUNS, project_id, after, limit), runs=True)

    async def calls(self, run_id: UUID, *, after: UUID | None, limit: int) -> Sequence[Told]:
        """See the port."""
        return _told(await self._fetch(_CALLS, run_id, after, limit))

    async def belongings(self, run_id: UUID) -> Sequence[bytes]:
        """See the port."""
        return [row["line"].encode() for row in await self._fetch(_BELONGINGS, run_id)]

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        async with self._lane.use() as connection:
            rows: Sequence[Any] = await connection.fetch(statement, *values)
        return rows


def _told(rows: Sequence[Any], *, runs: bool = False) -> list[Told]:
    return [Told(row["place"], row["line"].encode(), row["last_seq"] if runs else 0) for row in rows]
