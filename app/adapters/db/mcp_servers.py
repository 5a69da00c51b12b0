"""`ports.mcp.McpServerStore` in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSON, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.references import hold_credentials
from app.adapters.db.sealed_headers import with_open_headers, with_sealed_headers
from app.adapters.db.session import Database, lock_project
from app.adapters.db.tables import mcp_servers, tools
from app.adapters.db.tools import stored_tool
from app.core.errors import Conflict, FieldError, NotFound
from app.core.mcp_server import McpServer
from app.ports.ambient import IdSource
from app.ports.catalog import Once
from app.ports.mcp import StoredServer
from app.ports.sealing import Vault
from app.ports.tool import StoredTool

MOST: Final = 20
"""Servers of a project: each may be asked before a run begins."""


_SERVER: Final = "(server)"
"""Stands as the kind of a row that is no tool."""


def _both() -> sa.CompoundSelect[Any]:
    """The tools and the servers of a project, as rows of one form."""
    project = sa.bindparam("project", type_=sa.Uuid)
    columns = [column for column in tools.c if column is not tools.c.project_id]
    instead: dict[str, Any] = {
        "kind": sa.literal(_SERVER, sa.Text),
        "description": sa.literal("", sa.Text),
        "parameters": sa.cast(sa.literal("null", sa.Text), JSON),
        "strict": sa.false(),
        "idempotent": sa.false(),
    }
    theirs = [
        instead[column.name] if column.name in instead else mcp_servers.c[column.name] for column in columns
    ]
    return sa.union_all(
        sa.select(*columns).where(tools.c.project_id == project),
        sa.select(*theirs).where(mcp_servers.c.project_id == project),
    ).order_by("name")


_BOTH: Final = _both()


class PostgresMcpServers:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource, vault: Vault) -> None:
        self._database = database
        self._ids = ids
        self._vault = vault
        self._audit = Audit[StoredServer](
            ids,
            "mcp_server",
            name_of=lambda stored: stored.server.name,
            state_of=lambda stored: {"name": stored.server.name, **stored.server.settings()},
        )

    async def all(self, project_id: UUID) -> Sequence[StoredServer]:
        """See the port."""
        ours = mcp_servers.c.project_id == project_id
        async with self._database.reading() as connection:
            rows = await connection.execute(sa.select(mcp_servers).where(ours).order_by(mcp_servers.c.name))
            return [self._server(row) for row in rows]

    async def with_tools(self, project_id: UUID) -> tuple[Sequence[StoredTool], Sequence[StoredServer]]:
        """See the port."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(_BOTH, {"project": project_id})).all()
        found = [stored_tool(self._vault, row) for row in rows if row.kind != _SERVER]
        return found, [self._server(row) for row in rows if row.kind == _SERVER]

    async def find(self, project_id: UUID, name: str) -> StoredServer | None:
        """See the port."""
        async with self._database.reading() as connection:
            return await self._one(connection, project_id, name)

    async def create(
        self, project_id: UUID, server: McpServer, *, by: UUID | None, once: Once | None = None
    ) -> StoredServer:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            await lock_project(connection, project_id)
            await hold_credentials(connection, project_id, server.settings())
            if await self._one(connection, project_id, server.name) is not None:
                words = "the project has an MCP server of this name; PUT replaces it"
                raise Conflict(
                    f"The name {server.name!r} is in use: {words}.",
                    errors=[FieldError("/name", words, "name_taken")],
                )
            made = await self._insert(connection, project_id, server, by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def put(self, project_id: UUID, server: McpServer, *, by: UUID | None) -> tuple[StoredServer, bool]:
        """See the port."""
        async with self._database.writing() as connection:
            await lock_project(connection, project_id)
            await hold_credentials(connection, project_id, server.settings())
            before = await self._one(connection, project_id, server.name)
            if before is None or before.id is None:
                return await self._insert(connection, project_id, server, by), True
            changed = sa.update(mcp_servers).where(mcp_servers.c.id == before.id)
            changed = changed.values(settings=self._sealed(before.id, server), updated_at=sa.func.now())
            made = self._server((await connection.execute(changed.returning(mcp_servers))).one())
            await self._audit.note(connection, "replace", project_id, before, made, by=by)
        return made, False

    async def delete(self, project_id: UUID, name: str, *, by: UUID | None) -> None:
        """See the port."""
        async with self._database.writing() as connection:
            await lock_project(connection, project_id)
            before = await self._one(connection, project_id, name)
            if before is None:
                raise NotFound("There is no MCP server of this name in this project.")
            await connection.execute(sa.delete(mcp_servers).where(mcp_servers.c.id == before.id))
            await self._audit.note(connection, "delete", project_id, before, None, by=by)

    async def _insert(
        self, connection: AsyncConnection, project_id: UUID, server: McpServer, by: UUID | None
    ) -> StoredServer:
        ours = sa.select(sa.func.count()).where(mcp_servers.c.project_id == project_id)
        if (await connection.scalar(ours) or 0) >= MOST:
            raise Conflict(f"A project has at most {MOST} MCP servers; delete one first.")
        id = self._ids.new()
        statement = insert(mcp_servers).values(
            id=id, project_id=project_id, name=server.name, settings=self._sealed(id, server)
        )
        made = self._server((await connection.execute(statement.returning(mcp_servers))).one())
        await self._audit.note(connection, "create", project_id, None, made, by=by)
        return made

    async def _one(self, connection: AsyncConnection, project_id: UUID, name: str) -> StoredServer | None:
        ours = sa.and_(mcp_servers.c.project_id == project_id, mcp_servers.c.name == name)
        row = (await connection.execute(sa.select(mcp_servers).where(ours))).one_or_none()
        return None if row is None else self._server(row)

    def _server(self, row: Any) -> StoredServer:
        settings = with_open_headers(self._vault, mcp_servers.name, row.id, row.settings)
        return StoredServer(McpServer.of(row.name, settings), row.id, row.created_at, row.updated_at)

    def _sealed(self, id: UUID, server: McpServer) -> dict[str, Any]:
        return with_sealed_headers(self._vault, mcp_servers.name, id, server.settings())
