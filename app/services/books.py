"""Tell what runs used and cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

from app.core.errors import FieldError, Invalid
from app.ports.ambient import Clock
from app.ports.attempts import NewAttempt
from app.ports.catalog import Page, Slice
from app.ports.usage import GroupBy, Span, UsageReports, UsageSum

MAX_DAYS: Final = 366
"""Most days in one sum."""
USUAL_DAYS: Final = 31
"""How many are summed where nobody says since when."""


class Books:
    """The attempts of a project, one by one and summed."""

    def __init__(self, reports: UsageReports, clock: Clock) -> None:
        self._reports = reports
        self._clock = clock

    async def attempts(self, project_id: UUID, run_id: UUID) -> Sequence[NewAttempt]:
        """The attempts of a run that have ended. Raises NotFound."""
        return await self._reports.attempts(project_id, run_id)

    async def sums(
        self,
        project_id: UUID,
        group_by: GroupBy,
        part: Slice,
        *,
        first: date | None = None,
        last: date | None = None,
        branch_id: UUID | None = None,
    ) -> Page[UsageSum]:
        """Sums over days in UTC, both included; by default the latest `USUAL_DAYS`. Raises Invalid."""
        if last is None:
            last = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).date()
        if first is None:
            first = last - min(timedelta(days=USUAL_DAYS - 1), last - date.min)
        days = (last - first).days + 1
        if not 1 <= days <= MAX_DAYS:
            words = "from is after to" if days < 1 else f"at most {MAX_DAYS} days are summed at once"
            raise Invalid(
                f"These days cannot be summed: {words}.", errors=[FieldError("", words, "bad_span", "from")]
            )
        last = min(last, date.max - timedelta(days=1))
        return await self._reports.sums(project_id, group_by, Span(first, last, branch_id), part)
