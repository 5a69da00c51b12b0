"""`ports.catalog.Models` in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.references import hold_credentials
from app.adapters.db.sealed_headers import with_open_headers, with_sealed_headers
from app.adapters.db.session import Database
from app.adapters.db.tables import models
from app.core.errors import Conflict, FieldError, NotFound
from app.ports.ambient import IdSource
from app.ports.catalog import ModelSpec, Once, StoredModel
from app.ports.sealing import Vault

_SAID = tuple(ModelSpec.__slots__)


class PostgresModels:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource, vault: Vault) -> None:
        self._database = database
        self._ids = ids
        self._vault = vault
        self._audit = Audit[StoredModel](ids, "model", name_of=_name, state_of=_state)

    async def all(self, project_id: UUID) -> Sequence[StoredModel]:
        """See the port."""
        query = sa.select(models).where(models.c.project_id == project_id).order_by(models.c.name)
        async with self._database.reading() as connection:
            return [self._model(row) for row in await connection.execute(query)]

    async def find(self, project_id: UUID, name: str) -> StoredModel | None:
        """See the port."""
        async with self._database.reading() as connection:
            return await self._one(connection, project_id, name)

    async def create(
        self, project_id: UUID, spec: ModelSpec, *, by: UUID | None, once: Once | None = None
    ) -> StoredModel:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            await hold_credentials(connection, project_id, spec.options, spec.credential)
            id = self._ids.new()
            statement = (
                insert(models)
                .values(id=id, project_id=project_id, **self._values(id, spec))
                .on_conflict_do_nothing(index_elements=["project_id", "name"])
            )
            row = (await connection.execute(statement.returning(models))).one_or_none()
            if row is None:
                words = "the project has a model of this name; PUT replaces it"
                raise Conflict(
                    f"The name {spec.name!r} is in use: {words}.",
                    errors=[FieldError("/name", words, "name_taken")],
                )
            made = self._model(row)
            await self._audit.note(connection, "create", project_id, None, made, by=by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def put(self, project_id: UUID, spec: ModelSpec, *, by: UUID | None) -> tuple[StoredModel, bool]:
        """See the port."""
        async with self._database.writing() as connection:
            await hold_credentials(connection, project_id, spec.options, spec.credential)
            new_id = self._ids.new()
            # Inserted as it is or not at all: then the row that is in the way is locked and replaced.
            statement = insert(models).values(id=new_id, project_id=project_id, **self._values(new_id, spec))
            statement = statement.on_conflict_do_nothing(index_elements=["project_id", "name"])
            row = (await connection.execute(statement.returning(models))).one_or_none()
            if row is not None:
                made = self._model(row)
                await self._audit.note(connection, "create", project_id, None, made, by=by)
                return made, True
            before = await self._one(connection, project_id, spec.name, lock=True)
            if before is None or before.id is None:
                raise Conflict("The model was deleted at this moment; try again.")
            changed = sa.update(models).where(models.c.id == before.id)
            changed = changed.values(**self._values(before.id, spec), updated_at=sa.func.now())
            made = self._model((await connection.execute(changed.returning(models))).one())
            await self._audit.note(connection, "replace", project_id, before, made, by=by)
        return made, False

    async def delete(self, project_id: UUID, name: str, *, by: UUID | None) -> None:
        """See the port."""
        async with self._database.writing() as connection:
            before = await self._one(connection, project_id, name, lock=True)
            if before is None:
                raise NotFound("There is no model of this name in this project.")
            await connection.execute(sa.delete(models).where(models.c.id == before.id))
            await self._audit.note(connection, "delete", project_id, before, None, by=by)

    async def _one(
        self, connection: AsyncConnection, project_id: UUID, name: str, *, lock: bool = False
    ) -> StoredModel | None:
        query = sa.select(models).where(models.c.project_id == project_id, models.c.name == name)
        row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
        return None if row is None else self._model(row)

    def _model(self, row: Any) -> StoredModel:
        values = {name: row._mapping[name] for name in _SAID}
        values["options"] = with_open_headers(self._vault, models.name, row.id, values["options"])
        return StoredModel(ModelSpec(**values), row.id, row.created_at, row.updated_at)

    def _values(self, id: UUID, spec: ModelSpec) -> dict[str, Any]:
        values = {name: getattr(spec, name) for name in _SAID}
        values["options"] = with_sealed_headers(self._vault, models.name, id, spec.options)
        for name in ("lifecycle", "limits", "price"):
            values[name] = sa.null() if values[name] is None else values[name]
        return values


def _name(model: StoredModel) -> str:
    return model.spec.name


def _state(model: StoredModel) -> dict[str, Any]:
    return asdict(model.spec)
