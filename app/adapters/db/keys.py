"""`ports.catalog.Keys` in Postgres."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.paging import page_of, sliced
from app.adapters.db.quotas import quota_of
from app.adapters.db.session import Database
from app.adapters.db.tables import api_keys, projects, quotas
from app.core.errors import NotFound
from app.core.limits.quota import Quota
from app.ports.ambient import IdSource
from app.ports.catalog import ApiKey, KnownKey, NewKey, Once, Page, Slice

_COLUMNS = tuple(api_keys.c[name] for name in ApiKey.__slots__)
"""Everything but the digest, which no reader needs."""

_OF_QUOTA = "quota_"
_KNOWN = sa.select(*_COLUMNS, *(column.label(_OF_QUOTA + column.name) for column in quotas.c)).select_from(
    api_keys.outerjoin(quotas, quotas.c.id.in_([api_keys.c.id, api_keys.c.project_id]))
)
"""A key once for each of the two quotas that it may have, and once where it has none."""


class PostgresKeys:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids
        self._audit = Audit[ApiKey](ids, "key", name_of=lambda key: key.id, state_of=_state)

    async def any(self) -> bool:
        """See the port."""
        async with self._database.reading() as connection:
            live = sa.select(api_keys.c.id).where(api_keys.c.revoked_at.is_(None)).limit(1)
            return (await connection.execute(live)).first() is not None

    async def find(self, digest: bytes) -> KnownKey | None:
        """See the port."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(_KNOWN.where(api_keys.c.digest == digest))).all()
        if not rows:
            return None
        limits = [quota_of(row, _OF_QUOTA) for row in rows if row.quota_id is not None]
        return KnownKey(_key(rows[0]), tuple(sorted(limits, key=lambda quota: quota.owner)))

    async def get(self, key_id: UUID) -> ApiKey | None:
        """See the port."""
        async with self._database.reading() as connection:
            row = (
                await connection.execute(sa.select(*_COLUMNS).where(api_keys.c.id == key_id))
            ).one_or_none()
        return None if row is None else _key(row)

    async def quotas(self, project_id: UUID) -> tuple[Quota, ...]:
        """See the port."""
        async with self._database.reading() as connection:
            rows = await connection.execute(sa.select(quotas).where(quotas.c.id == project_id))
        return tuple(map(quota_of, rows))

    async def create(
        self, project_id: UUID, new: NewKey, *, by: UUID | None, once: Once | None = None
    ) -> ApiKey:
        """See the port."""
        async with self._database.writing() as connection:
            # The lock keeps the project where it is until the key is in.
            project = sa.select(projects.c.id).where(projects.c.id == project_id).with_for_update(read=True)
            if (await connection.execute(project)).first() is None:
                raise NotFound("There is no such project.")
            await replies.claim(connection, project_id, once)
            statement = sa.insert(api_keys).values(
                id=self._ids.new(),
                project_id=project_id,
                name=new.name,
                digest=new.digest,
                prefix=new.prefix,
                scopes=list(new.scopes),
                expires_at=new.expires_at,
            )
            made = _key((await connection.execute(statement.returning(*_COLUMNS))).one())
            await self._audit.note(connection, "create", project_id, None, made, by=by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def page(self, project_id: UUID, part: Slice) -> Page[ApiKey]:
        """See the port."""
        query = sa.select(*_COLUMNS).where(api_keys.c.project_id == project_id)
        async with self._database.reading() as connection:
            rows = (await connection.execute(sliced(query, api_keys.c.id, part))).all()
            known = sa.select(projects.c.id).where(projects.c.id == project_id)
            if not rows and (await connection.execute(known)).first() is None:
                raise NotFound("There is no such project.")
        return page_of([_key(row) for row in rows], part)

    async def revoke(self, project_id: UUID, key_id: UUID, *, by: UUID | None) -> ApiKey:
        """See the port."""
        async with self._database.writing() as connection:
            ours = sa.and_(api_keys.c.id == key_id, api_keys.c.project_id == project_id)
            query = sa.select(*_COLUMNS).where(ours).with_for_update()
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                raise NotFound("There is no such key in this project.")
            before = _key(row)
            if before.revoked_at is not None:
                return before
            changed = sa.update(api_keys).where(ours).values(revoked_at=sa.func.now())
            made = _key((await connection.execute(changed.returning(*_COLUMNS))).one())
            await self._audit.note(connection, "revoke", project_id, before, made, by=by)
        return made


def _key(row: Any) -> ApiKey:
    return ApiKey(**{name: row._mapping[name] for name in ApiKey.__slots__})


def _state(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "prefix": key.prefix,
        "scopes": list(key.scopes),
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
        "revoked": key.revoked_at is not None,
    }
