"""`ports.tool.ToolStore` in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.references import hold_credentials
from app.adapters.db.sealed_headers import with_open_headers, with_sealed_headers
from app.adapters.db.session import Database, lock_project
from app.adapters.db.tables import tools
from app.core.errors import Conflict, FieldError, NotFound
from app.ports.ambient import IdSource
from app.ports.catalog import Once
from app.ports.sealing import Vault
from app.ports.tool import StoredTool, ToolSpec

MOST: Final = 500
"""Tools of a project: all of them are read together, and more than that no model can be shown."""

_SAID = tuple(name for name in ToolSpec.__slots__ if name not in ("prepares", "origin", "version"))


class PostgresTools:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource, vault: Vault) -> None:
        self._database = database
        self._ids = ids
        self._vault = vault
        self._audit = Audit[StoredTool](
            ids, "tool", name_of=lambda tool: tool.spec.name, state_of=lambda tool: asdict(tool.spec)
        )

    async def all(self, project_id: UUID) -> Sequence[StoredTool]:
        """See the port."""
        query = sa.select(tools).where(tools.c.project_id == project_id).order_by(tools.c.name)
        async with self._database.reading() as connection:
            return [stored_tool(self._vault, row) for row in await connection.execute(query)]

    async def find(self, project_id: UUID, name: str) -> StoredTool | None:
        """See the port."""
        async with self._database.reading() as connection:
            return await self._one(connection, project_id, name)

    async def create(
        self, project_id: UUID, spec: ToolSpec, *, by: UUID | None, once: Once | None = None
    ) -> StoredTool:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            await lock_project(connection, project_id)
            await hold_credentials(connection, project_id, spec.settings)
            if await self._one(connection, project_id, spec.name) is not None:
                words = "the project has a tool of this name; PUT replaces it"
                raise Conflict(
                    f"The name {spec.name!r} is in use: {words}.",
                    errors=[FieldError("/name", words, "name_taken")],
                )
            made = await self._insert(connection, project_id, spec, by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def put(self, project_id: UUID, spec: ToolSpec, *, by: UUID | None) -> tuple[StoredTool, bool]:
        """See the port."""
        async with self._database.writing() as connection:
            await lock_project(connection, project_id)
            await hold_credentials(connection, project_id, spec.settings)
            before = await self._one(connection, project_id, spec.name)
            if before is None or before.id is None:
                return await self._insert(connection, project_id, spec, by), True
            changed = sa.update(tools).where(tools.c.id == before.id)
            changed = changed.values(**self._values(before.id, spec), updated_at=sa.func.now())
            changed = changed.returning(tools)
            made = stored_tool(self._vault, (await connection.execute(changed)).one())
            await self._audit.note(connection, "replace", project_id, before, made, by=by)
        return made, False

    async def delete(self, project_id: UUID, name: str, *, by: UUID | None) -> None:
        """See the port."""
        async with self._database.writing() as connection:
            await lock_project(connection, project_id)
            before = await self._one(connection, project_id, name)
            if before is None:
                raise NotFound("There is no tool of this name in this project.")
            await connection.execute(sa.delete(tools).where(tools.c.id == before.id))
            await self._audit.note(connection, "delete", project_id, before, None, by=by)

    async def _insert(
        self, connection: AsyncConnection, project_id: UUID, spec: ToolSpec, by: UUID | None
    ) -> StoredTool:
        ours = sa.select(sa.func.count()).where(tools.c.project_id == project_id)
        if (await connection.scalar(ours) or 0) >= MOST:
            raise Conflict(f"A project has at most {MOST} tools; delete one first.")
        id = self._ids.new()
        statement = insert(tools).values(id=id, project_id=project_id, **self._values(id, spec))
        made = stored_tool(self._vault, (await connection.execute(statement.returning(tools))).one())
        await self._audit.note(connection, "create", project_id, None, made, by=by)
        return made

    async def _one(self, connection: AsyncConnection, project_id: UUID, name: str) -> StoredTool | None:
        query = sa.select(tools).where(tools.c.project_id == project_id, tools.c.name == name)
        row = (await connection.execute(query)).one_or_none()
        return None if row is None else stored_tool(self._vault, row)

    def _values(self, id: UUID, spec: ToolSpec) -> dict[str, Any]:
        values = {name: getattr(spec, name) for name in _SAID}
        values["settings"] = with_sealed_headers(self._vault, tools.name, id, spec.settings)
        return values


def stored_tool(vault: Vault, row: Any) -> StoredTool:
    """The tool of a row, its headers open."""
    values = {name: row._mapping[name] for name in _SAID}
    values["settings"] = with_open_headers(vault, tools.name, row.id, values["settings"])
    return StoredTool(ToolSpec(**values), row.id, row.created_at, row.updated_at)
