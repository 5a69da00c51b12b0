"""`ports.credentials.CredentialStore` in Postgres; here secrets are sealed and opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.references import referring_to
from app.adapters.db.session import Database, lock_project
from app.adapters.db.tables import credentials
from app.core.errors import Conflict, FieldError, NotFound
from app.core.sealing import Envelope, Place
from app.ports.ambient import IdSource
from app.ports.catalog import Once
from app.ports.credentials import Credential, NewCredential
from app.ports.sealing import Vault

MOST: Final = 200
"""Credentials of a project: all of them are read together."""
NAMED: Final = 20
"""How many of those that refer to a credential are named where it cannot be removed."""

SECRET: Final = "secret"


class PostgresCredentials:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource, vault: Vault) -> None:
        self._database = database
        self._ids = ids
        self._vault = vault
        self._audit = Audit[Any](ids, "credential", name_of=lambda row: row.name, state_of=_state)

    async def all(self, project_id: UUID) -> Sequence[Credential]:
        """See the port."""
        query = sa.select(credentials).where(credentials.c.project_id == project_id)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(credentials.c.name))
            return [self._seen(row) for row in rows]

    async def find(self, project_id: UUID, name: str) -> Credential | None:
        """See the port."""
        async with self._database.reading() as connection:
            row = await _one(connection, project_id, name)
        return None if row is None else self._seen(row)

    async def secret(self, project_id: UUID, name: str) -> str | None:
        """See the port."""
        async with self._database.reading() as connection:
            row = await _one(connection, project_id, name)
        return None if row is None else self._vault.open(_place(row.id), row.secret)

    async def create(
        self, project_id: UUID, new: NewCredential, *, by: UUID | None, once: Once | None = None
    ) -> Credential:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            await lock_project(connection, project_id)
            if await _one(connection, project_id, new.name) is not None:
                words = "the project has a credential of this name; PUT replaces its secret"
                raise Conflict(
                    f"The name {new.name!r} is in use: {words}.",
                    errors=[FieldError("/name", words, "name_taken")],
                )
            made = await self._insert(connection, project_id, new, by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def put(self, project_id: UUID, new: NewCredential, *, by: UUID | None) -> tuple[Credential, bool]:
        """See the port."""
        async with self._database.writing() as connection:
            await lock_project(connection, project_id)
            before = await _one(connection, project_id, new.name, lock=True)
            if before is None:
                return await self._insert(connection, project_id, new, by), True
            now = sa.func.now()
            changed = sa.update(credentials).where(credentials.c.id == before.id)
            changed = changed.values(
                kind=new.kind,
                secret=self._vault.seal(_place(before.id), new.secret),
                updated_at=now,
                rotated_at=now,
            )
            row = (await connection.execute(changed.returning(credentials))).one()
            await self._audit.note(connection, "replace", project_id, before, row, by=by)
        return self._seen(row), False

    async def delete(self, project_id: UUID, name: str, *, by: UUID | None) -> None:
        """See the port."""
        async with self._database.writing() as connection:
            await lock_project(connection, project_id)
            before = await _one(connection, project_id, name, lock=True)
            if before is None:
                raise NotFound("There is no credential of this name in this project.")
            if users := await referring_to(connection, project_id, name, most=NAMED):
                raise Conflict(
                    f"The credential {name!r} is used by {', '.join(users)}; change that first.",
                    extra={"used_by": users},
                )
            await connection.execute(sa.delete(credentials).where(credentials.c.id == before.id))
            await self._audit.note(connection, "delete", project_id, before, None, by=by)

    async def _insert(
        self, connection: AsyncConnection, project_id: UUID, new: NewCredential, by: UUID | None
    ) -> Credential:
        ours = sa.select(sa.func.count()).where(credentials.c.project_id == project_id)
        if (await connection.scalar(ours) or 0) >= MOST:
            raise Conflict(f"A project has at most {MOST} credentials; delete one first.")
        id = self._ids.new()
        sealed = self._vault.seal(_place(id), new.secret)
        statement = sa.insert(credentials).values(
            id=id, project_id=project_id, name=new.name, kind=new.kind, secret=sealed
        )
        row = (await connection.execute(statement.returning(credentials))).one()
        await self._audit.note(connection, "create", project_id, None, row, by=by)
        return self._seen(row)

    def _seen(self, row: Any) -> Credential:
        envelope = Envelope.of(row.secret)
        key_id = "" if envelope is None else envelope.key_id
        return Credential(
            row.id,
            row.project_id,
            row.name,
            row.kind,
            key_id,
            key_id in self._vault.key_ids,
            row.created_at,
            row.updated_at,
            row.rotated_at,
        )


def _place(id: UUID) -> Place:
    return Place(credentials.name, id, SECRET)


async def _one(connection: AsyncConnection, project_id: UUID, name: str, *, lock: bool = False) -> Any:
    query = sa.select(credentials).where(credentials.c.project_id == project_id, credentials.c.name == name)
    return (await connection.execute(query.with_for_update() if lock else query)).one_or_none()


def _state(row: Any) -> Mapping[str, Any]:
    # The secret as it is stored: a digest of it tells that it changed, and nothing else.
    return {"kind": row.kind, "secret": row.secret}
