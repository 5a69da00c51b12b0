"""Pages of what runs leave behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

from app.ports.catalog import Page, Slice
from app.ports.storage import CallRecord, RunRecord


class Listings(Protocol):
    """`filters` are exact values of columns; the sort key is the id, so the order is that of creation."""

    async def runs(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[RunRecord]:
        """Runs of a project."""

    async def calls(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[CallRecord]:
        """Function calls of a project."""

    async def call(self, project_id: UUID, id: UUID) -> CallRecord:
        """One function call. Raises NotFound."""
