"""Keep what people are asked about tool calls, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

from app.ports.catalog import Once, Page, Slice
from app.ports.waiting import ApprovalRecord

Verb = Literal["approve", "deny", "edit"]


@dataclass(frozen=True, slots=True)
class Question:
    """An approval with what its decision depends on."""

    approval: ApprovalRecord
    asked_for_by: UUID | None
    """The key that started the run; None for one that was started without a key."""
    self_approval: bool
    """Whether the project lets that key decide."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a person says."""

    decision: Verb
    by: UUID | None
    comment: str | None = None
    arguments: str | None = None
    """JSON text of the arguments that take the place of those that were asked about; only of `edit`."""
    digest: str | None = None
    """Of those arguments."""


class Approvals(Protocol):
    """The approvals of all projects."""

    async def page(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[ApprovalRecord]:
        """A page of a project's approvals."""

    async def question(self, project_id: UUID, function_call_id: UUID) -> Question:
        """What is asked about a call. Raises NotFound where nothing is, or was."""

    async def decide(
        self,
        project_id: UUID,
        function_call_id: UUID,
        ruling: Ruling,
        *,
        at: datetime,
        once: Once | None = None,
    ) -> ApprovalRecord:
        """Settle a pending approval, and have its run taken up. Raises AlreadyDecided: one counts."""
