"""Keep the limits of keys and projects, and count what all processes use of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from app.core.limits.quota import QuotaLimits, Standing
from app.core.limits.share import Grant


@dataclass(frozen=True, slots=True)
class Used:
    """The limits of one key or project, and how far each that is set is used."""

    id: UUID
    project_id: UUID
    key_id: UUID | None
    """None for the limits of the project itself."""
    standings: Sequence[Standing]


class Quotas(Protocol):
    """Limits as they are set and shown. `key_id` is None for the limits of the project itself.

    A project or a key that is not there, or not in the project, raises NotFound.
    """

    async def used(self, project_id: UUID, key_id: UUID | None) -> Used:
        """How far they are used."""

    async def set(
        self, project_id: UUID, key_id: UUID | None, limits: QuotaLimits, *, by: UUID | None
    ) -> Used:
        """Put them in the place of those that are set. `by` is the key that asks, for the audit log.

        What was used of the day before, and runs that have not ended, count from the beginning.
        """

    async def counts_usage(self) -> bool:
        """Whether anything has a limit on tokens or cost. Raises Unavailable."""


class Shares(Protocol):
    """The requests of a minute, shared out to processes. All times are the database's."""

    async def take(self, quota_id: UUID, wanted: int) -> Grant | None:
        """Take some of the minute's requests, as many as wanted at most; None where they are not limited
        any more. Raises Unavailable.
        """

    async def give_back(self, unused: Mapping[UUID, tuple[int, int]]) -> None:
        """Give back what was taken and not used, by minute and number. Raises Unavailable."""
