"""`ports.catalog.Projects` in Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.holds import keep_sweep_away
from app.adapters.db.paging import page_of, sliced
from app.adapters.db.session import Database
from app.adapters.db.tables import projects
from app.core.errors import Conflict, FieldError, NotFound
from app.ports.ambient import IdSource
from app.ports.catalog import Once, Page, Project, Slice


class PostgresProjects:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids
        self._audit = Audit[Project](ids, "project", name_of=lambda project: project.id, state_of=_state)

    async def create(
        self,
        name: str,
        lifecycle: Mapping[str, Any] | None,
        *,
        by: UUID | None,
        once: Once | None = None,
        once_in: UUID | None = None,
    ) -> Project:
        """See the port."""
        async with self._database.writing() as connection:
            if once_in is not None:
                await replies.claim(connection, once_in, once)
            made = await self._insert(connection, name, lifecycle)
            if made is None:
                raise _name_taken(name)
            await self._audit.note(connection, "create", made.id, None, made, by=by)
            if once_in is not None:
                await replies.keep(connection, once_in, once, made)
        return made

    async def ensure(self, name: str) -> Project:
        """See the port."""
        async with self._database.writing() as connection:
            made = await self._insert(connection, name, None)
            if made is not None:
                return made
            found = await connection.execute(sa.select(projects).where(projects.c.name == name))
            return _project(found.one())

    async def _insert(
        self, connection: AsyncConnection, name: str, lifecycle: Mapping[str, Any] | None
    ) -> Project | None:
        statement = (
            insert(projects)
            .values(id=self._ids.new(), name=name, lifecycle=_or_null(lifecycle))
            .on_conflict_do_nothing(index_elements=["name"])
            .returning(projects)
        )
        row = (await connection.execute(statement)).one_or_none()
        return None if row is None else _project(row)

    async def get(self, project_id: UUID) -> Project:
        """See the port."""
        async with self._database.reading() as connection:
            row = (
                await connection.execute(sa.select(projects).where(projects.c.id == project_id))
            ).one_or_none()
        if row is None:
            raise _no_project()
        return _project(row)

    async def page(self, part: Slice) -> Page[Project]:
        """See the port."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(sliced(sa.select(projects), projects.c.id, part))).all()
        return page_of([_project(row) for row in rows], part)

    async def change(self, project_id: UUID, changes: Mapping[str, Any], *, by: UUID | None) -> Project:
        """See the port."""
        async with self._database.writing() as connection:
            if "legal_hold" in changes:
                await keep_sweep_away(connection)
            ours = projects.c.id == project_id
            row = (await connection.execute(sa.select(projects).where(ours).with_for_update())).one_or_none()
            if row is None:
                raise _no_project()
            if not changes:
                return _project(row)
            name = changes.get("name", row.name)
            taken = sa.select(projects.c.id).where(projects.c.name == name, projects.c.id != project_id)
            if (await connection.execute(taken)).first():
                raise _name_taken(name)
            values = {column: _or_null(value) for column, value in changes.items()} | {"name": name}
            changed = sa.update(projects).where(ours).values(**values, updated_at=sa.func.now())
            made = _project((await connection.execute(changed.returning(projects))).one())
            await self._audit.note(connection, "update", project_id, _project(row), made, by=by)
        return made


def _project(row: Any) -> Project:
    return Project(**{name: row._mapping[name] for name in Project.__slots__})


def _state(project: Project) -> dict[str, Any]:
    policies = ("gate", "permissions", "hooks", "self_approval")
    told = ("name", "lifecycle", *policies, "retention_days", "legal_hold")
    return {name: getattr(project, name) for name in told}


def _or_null(value: Any) -> Any:
    return sa.null() if value is None else value


def _no_project() -> NotFound:
    return NotFound("There is no such project.")


def _name_taken(name: str) -> Conflict:
    words = "another project has this name"
    return Conflict(
        f"The name {name!r} is in use: {words}.", errors=[FieldError("/name", words, "name_taken")]
    )
