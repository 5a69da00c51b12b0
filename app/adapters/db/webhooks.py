"""`ports.webhooks.WebhookEndpoints` in Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db import replies
from app.adapters.db.audit import Audit
from app.adapters.db.paging import page_of, sliced
from app.adapters.db.session import Database, lock_project
from app.adapters.db.tables import webhook_deliveries as deliveries
from app.adapters.db.tables import webhook_endpoints as endpoints
from app.core.errors import Conflict, NotFound
from app.core.sealing import Place
from app.ports.ambient import IdSource
from app.ports.catalog import Once, Page, Slice
from app.ports.sealing import Vault
from app.ports.webhooks import Delivery, Endpoint, NewEndpoint

MOST: Final = 20
"""Endpoints of a project: accepting a run writes a row for each."""
OVERLAP: Final = timedelta(days=1)
"""How long the former secret counts beside a new one."""
KEPT_FOR: Final = timedelta(days=30)
"""How long a delivery is kept, counted from the acceptance of its run."""
SWEPT: Final = 5_000
"""Deliveries that are removed at a time."""

_COLUMNS = tuple(endpoints.c[name] for name in Endpoint.__slots__)
"""Everything but the secrets."""
_DELIVERY = tuple(deliveries.c[name] for name in Delivery.__slots__)


class PostgresWebhooks:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource, vault: Vault) -> None:
        self._database = database
        self._ids = ids
        self._vault = vault
        self._audit = Audit[Endpoint](ids, "webhook_endpoint", name_of=_name, state_of=_told)
        self._redrives = Audit[Delivery](
            ids,
            "webhook_delivery",
            name_of=lambda delivery: f"{delivery.endpoint_id}:{delivery.run_id}",
            state_of=lambda delivery: {"status": delivery.status},
        )

    async def create(
        self, project_id: UUID, new: NewEndpoint, secret: str, *, by: UUID | None, once: Once | None = None
    ) -> Endpoint:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            await lock_project(connection, project_id)
            ours = sa.select(sa.func.count()).where(endpoints.c.project_id == project_id)
            if (await connection.scalar(ours) or 0) >= MOST:
                raise Conflict(f"A project has at most {MOST} webhook endpoints; delete one first.")
            id = self._ids.new()
            statement = sa.insert(endpoints).values(
                id=id,
                project_id=project_id,
                url=new.url,
                description=new.description,
                callbacks=_list(new.callbacks),
                event_types=list(new.event_types),
                secret=self._vault.seal(secret_place(id), secret),
                **_state(new.active),
            )
            made = _endpoint((await connection.execute(statement.returning(*_COLUMNS))).one())
            await self._audit.note(connection, "create", project_id, None, made, by=by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def page(self, project_id: UUID, part: Slice) -> Page[Endpoint]:
        """See the port."""
        query = sa.select(*_COLUMNS).where(endpoints.c.project_id == project_id)
        async with self._database.reading() as connection:
            rows = (await connection.execute(sliced(query, endpoints.c.id, part))).all()
        return page_of([_endpoint(row) for row in rows], part)

    async def get(self, project_id: UUID, endpoint_id: UUID) -> Endpoint:
        """See the port."""
        async with self._database.reading() as connection:
            return await _one(connection, project_id, endpoint_id)

    async def change(
        self, project_id: UUID, endpoint_id: UUID, changes: Mapping[str, Any], *, by: UUID | None
    ) -> Endpoint:
        """See the port."""
        async with self._database.writing() as connection:
            before = await _one(connection, project_id, endpoint_id, lock=True)
            values = dict(changes)
            if "active" in values:
                active = values.pop("active")
                values |= _state(active) if active != before.active else {}
            if not values:
                return before
            made = await _changed(connection, endpoint_id, values)
            await self._audit.note(connection, "update", project_id, before, made, by=by)
        return made

    async def rotate(
        self, project_id: UUID, endpoint_id: UUID, secret: str, *, by: UUID | None, once: Once | None = None
    ) -> Endpoint:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            before = await _one(connection, project_id, endpoint_id, lock=True)
            values = {
                "secret": self._vault.seal(secret_place(endpoint_id), secret),
                "previous_secret": endpoints.c.secret,
                "previous_until": sa.func.now() + OVERLAP,
            }
            made = await _changed(connection, endpoint_id, values)
            await self._audit.note(connection, "rotate_secret", project_id, before, made, by=by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def delete(self, project_id: UUID, endpoint_id: UUID, *, by: UUID | None) -> None:
        """See the port."""
        async with self._database.writing() as connection:
            before = await _one(connection, project_id, endpoint_id, lock=True)
            await connection.execute(sa.delete(endpoints).where(endpoints.c.id == endpoint_id))
            await connection.execute(sa.delete(deliveries).where(deliveries.c.endpoint_id == endpoint_id))
            await self._audit.note(connection, "delete", project_id, before, None, by=by)

    async def deliveries(
        self, project_id: UUID, endpoint_id: UUID, status: str | None, part: Slice
    ) -> Page[Delivery]:
        """See the port."""
        query = sa.select(*_DELIVERY).where(deliveries.c.endpoint_id == endpoint_id)
        if status is not None:
            query = query.where(deliveries.c.status == status)
        async with self._database.reading() as connection:
            await _one(connection, project_id, endpoint_id)
            rows = (await connection.execute(sliced(query, deliveries.c.run_id, part))).all()
        return page_of([_delivery(row) for row in rows], part)

    async def redrive(
        self,
        project_id: UUID,
        endpoint_id: UUID,
        run_id: UUID,
        *,
        by: UUID | None,
        once: Once | None = None,
    ) -> Delivery:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            await _one(connection, project_id, endpoint_id)
            this = sa.and_(deliveries.c.endpoint_id == endpoint_id, deliveries.c.run_id == run_id)
            query = sa.select(*_DELIVERY, deliveries.c.lease_until > sa.func.now()).where(this)
            row = (await connection.execute(query.with_for_update())).one_or_none()
            if row is None:
                raise NotFound("There is no such delivery of this endpoint.")
            if row.status == "done":
                raise Conflict("Everything of this run has been delivered; there is nothing to redrive.")
            before = made = _delivery(row[:-1])
            if not row[-1]:  # else it is being tried at this moment
                fresh = {"status": "pending", "failures": 0, "next_at": sa.func.now(), "ended_at": None}
                changed = sa.update(deliveries).where(this).values(fresh).returning(*_DELIVERY)
                made = _delivery((await connection.execute(changed)).one())
            await self._redrives.note(connection, "redrive", project_id, before, made, by=by)
            await replies.keep(connection, project_id, once, made)
        return made


def secret_place(endpoint_id: UUID) -> Place:
    """Where an endpoint's secrets are stored: one place, because a rotation hands the secret on as it is."""
    return Place(endpoints.name, endpoint_id, "secret")


async def forget_deliveries(connection: AsyncConnection) -> int:
    """Remove some deliveries that are old, or whose endpoint is gone; their number. Does not commit."""
    key = sa.tuple_(deliveries.c.endpoint_id, deliveries.c.run_id)
    orphaned = ~sa.exists().where(endpoints.c.id == deliveries.c.endpoint_id)
    old = deliveries.c.created_at < sa.func.now() - KEPT_FOR
    chosen = sa.select(deliveries.c.endpoint_id, deliveries.c.run_id).where(sa.or_(old, orphaned))
    statement = sa.delete(deliveries).where(key.in_(chosen.limit(SWEPT)))
    return (await connection.execute(statement)).rowcount


async def _one(
    connection: AsyncConnection, project_id: UUID, endpoint_id: UUID, *, lock: bool = False
) -> Endpoint:
    query = sa.select(*_COLUMNS).where(endpoints.c.id == endpoint_id, endpoints.c.project_id == project_id)
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    if row is None:
        raise NotFound("There is no such webhook endpoint in this project.")
    return _endpoint(row)


async def _changed(connection: AsyncConnection, endpoint_id: UUID, values: Mapping[str, Any]) -> Endpoint:
    statement = sa.update(endpoints).where(endpoints.c.id == endpoint_id)
    statement = statement.values(**values, updated_at=sa.func.now())
    return _endpoint((await connection.execute(statement.returning(*_COLUMNS))).one())


def _state(active: bool) -> dict[str, Any]:
    if active:
        return {"active": True, "disabled_at": None, "disabled_reason": None}
    return {"active": False, "disabled_at": sa.func.now(), "disabled_reason": "requested"}


def _list(names: Any) -> list[str] | None:
    return None if names is None else list(names)


def _endpoint(row: Any) -> Endpoint:
    return Endpoint(*row)


def _delivery(row: Any) -> Delivery:
    return Delivery(*row)


def _name(endpoint: Endpoint) -> str:
    return str(endpoint.id)


def _told(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "url": endpoint.url,
        "description": endpoint.description,
        "callbacks": _list(endpoint.callbacks),
        "event_types": list(endpoint.event_types),
        "active": endpoint.active,
    }
