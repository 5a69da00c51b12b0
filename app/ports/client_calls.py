"""Keep the calls that clients carry out: who has which, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.ports.catalog import Once, Page, Slice
from app.ports.waiting import ClientCallRecord


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker wants a call to itself, or to keep it."""

    by: UUID | None
    """Its key."""
    held: UUID | None
    """The token of the lease that it has; None for a worker that has none."""
    token: UUID
    """That of a new lease."""
    lease_s: float | None
    """For how long, from now on; None means for as long as the tool says."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What a client says came of a call: an output or an error, as JSON text."""

    by: UUID | None
    held: UUID | None
    """The token of the lease under which it was done; None without one."""
    digest: str
    """Of the whole result: the same one may be brought again."""
    output: str | None = None
    truncated: bool = False
    """Whether `output` is the beginning of a longer one."""
    error: str | None = None
    arguments_digest: str | None = None
    """Of the arguments that it was done with, if the client says so."""


class ClientCalls(Protocol):
    """The calls of all projects that clients carry out."""

    async def page(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[ClientCallRecord]:
        """A page of a project's calls."""

    async def claim(
        self,
        project_id: UUID,
        function_call_id: UUID,
        claim: Claim,
        *,
        at: datetime,
        once: Once | None = None,
    ) -> ClientCallRecord:
        """Give a worker the call for a while. Raises NotFound, CallNotWaiting, CallLeased, ClaimLost."""

    async def bring(
        self,
        project_id: UUID,
        function_call_id: UUID,
        brought: Brought,
        *,
        at: datetime,
        once: Once | None = None,
    ) -> ClientCallRecord:
        """Settle a call that waits, and have its run taken up; the same result again changes nothing.

        Raises NotFound, CallNotWaiting, AlreadyAnswered, CallLeased, ClaimLost, ArgumentsDiffer.
        """
