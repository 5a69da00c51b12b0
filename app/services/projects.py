"""Projects, the tenants of an installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.core.access import Principal, Scope
from app.core.errors import NotFound
from app.ports.catalog import Once, Page, Project, Slice
from app.ports.catalog import Projects as ProjectStore

DEFAULT_PROJECT = "default"
"""The project of development mode and of the bootstrap key; made at start."""


class Projects:
    """Use cases of operators, and of admins in their own project."""

    def __init__(self, store: ProjectStore) -> None:
        self._store = store

    async def create(
        self, who: Principal, name: str, lifecycle: Mapping[str, Any] | None, once: Once | None = None
    ) -> Project:
        """A new project. Raises Forbidden, Conflict."""
        who.need(Scope.OPERATOR)
        return await self._store.create(name, lifecycle, by=who.key_id, once=once, once_in=who.project_id)

    async def page(self, who: Principal, part: Slice) -> Page[Project]:
        """Every project. Raises Forbidden."""
        who.need(Scope.OPERATOR)
        return await self._store.page(part)

    async def get(self, who: Principal, project_id: UUID) -> Project:
        """One project: any for an operator, else one's own. Raises NotFound."""
        _check_reach(who, project_id)
        return await self._store.get(project_id)

    async def change(self, who: Principal, project_id: UUID, changes: Mapping[str, Any]) -> Project:
        """Set fields of the project. Raises NotFound, Forbidden, Conflict."""
        _check_reach(who, project_id)
        if not who.administers(project_id):
            who.need(Scope.ADMIN, Scope.OPERATOR)
        return await self._store.change(project_id, changes, by=who.key_id)


def _check_reach(who: Principal, project_id: UUID) -> None:
    if Scope.OPERATOR not in who.scopes and project_id != who.project_id:
        raise NotFound("There is no such project.")
