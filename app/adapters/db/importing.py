"""`ports.transfer.ImportWriter` in Postgres: copies rows, a section in a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

from app.adapters.db.columns import block_row, event_row
from app.adapters.db.holds import SWEEP
from app.adapters.db.lane import Lane
from app.adapters.db.partitions import make_partitions, week_of
from app.adapters.db.run_store import told
from app.adapters.db.tables import events, token_blocks
from app.core.errors import Invalid
from app.core.json_text import dumps
from app.core.record import Entry, TokenBlock
from app.core.transfer.lines import AttemptLine, BranchLine, ClientCallLine, Line, MessageLine, RunLine
from app.ports.ambient import IdSource
from app.ports.transfer import IdTaken, SectionWriter

_OF_BRANCH: Final = frozenset({"messages", "runs", "attempts", "function_calls", "client_calls"})
"""Tables that tell the branch."""
_NOTE: Final = """
INSERT INTO audit_log (id, project_id, key_id, action, subject) VALUES ($1, $2, $3, $4, $5)"""

# Nothing points at the runs and branches of which these tell, so nothing else keeps them to their project.
_FOREIGN_RUNS: Final = "SELECT true FROM runs WHERE id = ANY($1::uuid[]) AND project_id <> $2 LIMIT 1"
_REMAINS: Final = "SELECT true FROM purged_logs WHERE run_id = ANY($1::uuid[]) LIMIT 1"
_KEPT: Final = "SELECT stream, fallback_index, attempt FROM attempts WHERE run_id = $1"
_FOREIGN_ATTEMPTS: Final = (
    "SELECT true FROM attempts WHERE run_id = ANY($1::uuid[]) AND project_id <> $2 LIMIT 1"
)
_FOREIGN: Final = """
SELECT true FROM branches WHERE id = $1 AND project_id <> $3
UNION ALL SELECT true FROM runs WHERE id = $2 AND project_id <> $3"""


class PostgresImports:
    """See the port."""

    def __init__(self, arguments: dict[str, Any], engine: AsyncEngine, ids: IdSource) -> None:
        """`arguments` are those of `asyncpg.connect`; of several imports one writes, and the others wait."""
        self._lane = Lane(arguments)
        self._engine = engine
        self._ids = ids

    async def close(self) -> None:
        """Close the connection."""
        await self._lane.close()

    @asynccontextmanager
    async def section(self, project_id: UUID, *, by: UUID | None) -> AsyncIterator[SectionWriter]:
        """See the port."""
        async with self._lane.use() as connection, connection.transaction():
            # What is brought in is not dropped for its age while it is, nor are the weeks made for it.
            await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", SWEEP)
            yield _Section(connection, self._engine, self._ids, project_id, by)


class _Section:
    """See `SectionWriter`."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        engine: AsyncEngine,
        ids: IdSource,
        project_id: UUID,
        by: UUID | None,
    ) -> None:
        self._connection = connection
        self._engine = engine
        self._ids = ids
        self._project_id = project_id
        self._by = by
        self._branch_id: UUID | None = None
        self._weeks: set[int] = set()

    async def begin(self, first: BranchLine | RunLine) -> bool:
        """See the port."""
        # Locked, so that what is found to be there is not being deleted.
        owner = await self._connection.fetchval(
            f"SELECT project_id FROM {first.table} WHERE id = $1 FOR KEY SHARE", first.id
        )
        if owner == self._project_id:
            return False
        if owner is not None:
            raise IdTaken("The id is in use.")
        kind = "branch" if isinstance(first, BranchLine) else "run"
        if isinstance(first, BranchLine):
            if await self._connection.fetchval(
                _FOREIGN, first.parent_id, first.forked_run_id, self._project_id
            ):
                raise IdTaken("The branch is said to be a fork of another project's.")
            await self.rows([first], run_id=None)
            self._branch_id = first.id
        else:
            await self.rows([first], run_id=first.id)
        note = (self._ids.new(), self._project_id, self._by, f"{kind}.import", f"{kind}:{first.id}")
        await self._connection.execute(_NOTE, *note)
        return True

    async def rows(self, lines: Sequence[Line], *, run_id: UUID | None) -> None:
        """See the port."""
        kind = type(lines[0])
        assert kind.table is not None
        place: dict[str, UUID | None] = {"project_id": self._project_id}
        if kind.table in _OF_BRANCH:
            place["branch_id"] = self._branch_id
        if run_id is not None and kind is not RunLine:
            place["run_id"] = run_id
        if kind is RunLine:
            await self._make_weeks([line.id for line in lines if isinstance(line, RunLine)])
        if kind is MessageLine:
            said_by = [line.run_id for line in lines if isinstance(line, MessageLine) and line.run_id]
            if said_by and await self._connection.fetchval(_FOREIGN_RUNS, said_by, self._project_id):
                raise IdTaken("A message is said to be of a run of another project.")
        if kind is AttemptLine and run_id is not None:
            lines = await self._without_kept(
                [line for line in lines if isinstance(line, AttemptLine)], run_id
            )
        records = [(*place.values(), *_values(line)) for line in lines]
        await self._copy(kind.table, [*place, *kind.columns()], records)
        if kind is RunLine:
            await self._refuse_remains([line.id for line in lines if isinstance(line, RunLine)])

    async def entries(self, run_id: UUID, entries: Sequence[Entry]) -> None:
        """See the port."""
        blocks = [block_row(run_id, entry) for entry in entries if isinstance(entry, TokenBlock)]
        singles = [event_row(run_id, entry) for entry in entries if not isinstance(entry, TokenBlock)]
        for table, records in ((token_blocks, blocks), (events, singles)):
            if records:
                await self._copy(table.name, [column.name for column in table.columns], records)

    async def _copy(self, table: str, columns: Sequence[str], records: Sequence[tuple[Any, ...]]) -> None:
        try:
            await self._connection.copy_records_to_table(table, columns=columns, records=records)
        except asyncpg.UniqueViolationError as refusal:
            raise IdTaken(f"An id or a place of it is in use: {told(refusal)}.") from refusal
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as refusal:
            raise Invalid(f"The database takes none of it: {told(refusal)}.") from refusal

    async def _without_kept(self, lines: Sequence[AttemptLine], run_id: UUID) -> Sequence[AttemptLine]:
        """Those that are not there yet: what attempts used and cost outlives their run, and is so once."""
        kept = {tuple(row) for row in await self._connection.fetch(_KEPT, run_id)}
        return [line for line in lines if (line.stream, line.fallback_index, line.attempt) not in kept]

    async def _refuse_remains(self, runs: Sequence[UUID]) -> None:
        """What is left of a run that was removed is not to be taken for this one's, nor this one's for that.

        Looked for once the runs are stored: a purge of the same ones that went on meanwhile is seen then.
        """
        if await self._connection.fetchval(_REMAINS, runs):
            raise IdTaken("A log of this run is still being removed, after a purge; send it again later.")
        if await self._connection.fetchval(_FOREIGN_ATTEMPTS, runs, self._project_id):
            raise IdTaken("The id is that of a run of another project.")

    async def _make_weeks(self, runs: Sequence[UUID]) -> None:
        """Make the partitions that are missing, by themselves: others must not wait for the section's end."""
        weeks = {week_of(run.int >> 80) for run in runs} - self._weeks
        if weeks:
            async with self._engine.begin() as connection:
                await make_partitions(connection, weeks)
            self._weeks |= weeks


def _values(line: Line) -> list[Any]:
    kind = type(line)
    out = []
    for name in kind.columns():
        value = getattr(line, name)
        if name in kind.json_columns:
            never_null = name in kind.json_never_null or _is_an_answer(line, name)
            value = None if value is None and not never_null else dumps(value).decode()
        out.append(value)
    return out


def _is_an_answer(line: Line, name: str) -> bool:
    """Whether it is an output that is null: of a call that was answered, one of two is there."""
    return (
        isinstance(line, ClientCallLine)
        and name == "output"
        and line.status == "answered"
        and line.error is None
    )
