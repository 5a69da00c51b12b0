"""Read what attempts used and cost: one by one for a run, and summed for a project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol
from uuid import UUID

from app.core.usage.totals import Totals
from app.ports.attempts import NewAttempt
from app.ports.catalog import Page, Slice

GroupBy = Literal["project", "day", "model", "branch", "run"]


@dataclass(frozen=True, slots=True)
class Span:
    """Which attempts are summed: those that ended on days in UTC, both included."""

    first: date
    last: date
    branch_id: UUID | None = None
    """Those of one branch alone."""


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The sum of one group of attempts."""

    key: str
    """The group's sort key: a day as YYYY-MM-DD, a name or an id; empty for what has none."""
    runs: int
    estimated_attempts: int
    totals: Totals


class UsageReports(Protocol):
    """What is read is what was committed with the logs of runs."""

    async def attempts(self, project_id: UUID, run_id: UUID) -> Sequence[NewAttempt]:
        """The attempts of a run that have ended, in that order. Raises NotFound."""

    async def sums(self, project_id: UUID, group_by: GroupBy, span: Span, part: Slice) -> Page[UsageSum]:
        """Groups of the project's attempts, in the order of their keys; none for a group without attempts."""
