"""Pages of what runs and changes leave behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.core.governance.decision import KeyFacts
from app.ports.catalog import Page, Slice
from app.ports.storage import CallRecord, RunRecord


@dataclass(frozen=True, slots=True)
class Caller:
    """In whose name, and where, the calls of a run were made; all of it as it is now."""

    project_name: str
    branch_name: str | None
    branch_metadata: Mapping[str, Any]
    key: KeyFacts | None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A row of `audit_log`."""

    id: UUID
    project_id: UUID
    at: datetime
    key_id: UUID | None
    action: str
    subject: str
    digest_before: str | None
    digest_after: str | None
    detail: Mapping[str, Any] | None


class Listings(Protocol):
    """`filters` are exact values of columns; the sort key is the id, so the order is that of creation."""

    async def runs(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[RunRecord]:
        """Runs of a project."""

    async def calls(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[CallRecord]:
        """Function calls of a project."""

    async def callers(self, project_id: UUID, run_ids: Collection[UUID]) -> Mapping[UUID, Caller]:
        """Those of some runs of a project."""

    async def audit(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[AuditRecord]:
        """Changes of a project's settings."""

    async def call(self, project_id: UUID, id: UUID) -> CallRecord:
        """One function call. Raises NotFound."""
