"""Read histories for an export, page by page, and write those of an import, section by section."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.core.errors import Conflict
from app.core.record import Entry
from app.core.transfer.lines import BranchLine, Line, RunLine


class IdTaken(Conflict):
    """Something with this id is there already, and is something else."""

    code = "id_taken"


@dataclass(frozen=True, slots=True)
class Mark:
    """A branch on which nothing goes on, and up to where it is told: what comes later is left out."""

    branch_id: UUID
    line: bytes
    """Its `branch` line."""
    next_position: int
    last_run: UUID | None
    last_end: datetime | None


@dataclass(frozen=True, slots=True)
class Told:
    """A line, and its place in the order of its kind."""

    place: UUID | int
    line: bytes
    last_seq: int = 0
    """Of a run: the number of its last event."""


class ExportReader(Protocol):
    """Every method reads one page, and holds nothing between two of them."""

    async def note(self, project_id: UUID, subject: str, *, by: UUID | None) -> None:
        """Into the audit log: what is going to be read."""

    async def mark(self, project_id: UUID, branch_id: UUID, *, first: bool = False) -> Mark:
        """Raises NotFound, and BranchBusy while a run is active or queued.

        The `first` of an export raises Unavailable, as `note` does, where others leave it no place in time.
        """

    async def branches(self, project_id: UUID, *, after: UUID | None, limit: int) -> Sequence[UUID]:
        """Branches of a project by id."""

    async def messages(self, mark: Mark, *, after: int, limit: int) -> Sequence[Told]:
        """Messages after a position."""

    async def runs(self, mark: Mark, *, after: UUID | None, limit: int) -> Sequence[Told]:
        """Runs of the branch after one of them."""

    async def lone_runs(self, project_id: UUID, *, after: UUID | None, limit: int) -> Sequence[Told]:
        """Runs of the project that have no branch and have ended."""

    async def calls(self, run_id: UUID, *, after: UUID | None, limit: int) -> Sequence[Told]:
        """Function calls of a run after one of them."""

    async def belongings(self, run_id: UUID) -> Sequence[bytes]:
        """Lines of what else is a run's: attempts, approvals, client calls."""


class SectionWriter(Protocol):
    """Stores one section; nothing of it is there before its end."""

    async def begin(self, first: BranchLine | RunLine) -> bool:
        """Store the first line; False where the project has it already. Raises IdTaken."""

    async def rows(self, lines: Sequence[Line], *, run_id: UUID | None) -> None:
        """Store lines of one kind, those that belong to a run with its id. Raises IdTaken, Invalid."""

    async def entries(self, run_id: UUID, entries: Sequence[Entry]) -> None:
        """Store a part of a log."""


class ImportWriter(Protocol):
    """Where sections are stored."""

    def section(self, project_id: UUID, *, by: UUID | None) -> AbstractAsyncContextManager[SectionWriter]:
        """One section, in one transaction: stored when the block ends without an error."""
