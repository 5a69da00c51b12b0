"""Webhook endpoints of a project, and what was delivered to them, for the project's admins."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from app.core.access import Principal
from app.core.addresses import AddressRule
from app.core.errors import FieldError, Invalid
from app.core.events import event_types
from app.core.webhooks import SECRET_BYTES, secret_of
from app.ports.catalog import Once, Page, Slice
from app.ports.webhooks import Delivery, Endpoint, NewEndpoint, WebhookEndpoints


class Webhooks:
    """See the port; here their addresses and event types are checked, and their secrets made."""

    def __init__(self, store: WebhookEndpoints, addresses: AddressRule) -> None:
        self._store = store
        self._addresses = addresses

    async def create(
        self, who: Principal, new: NewEndpoint, once: Once | None = None
    ) -> tuple[Endpoint, str]:
        """A new endpoint and its secret, which is not shown again. Raises Invalid, Conflict."""
        self._check(new.url, new.event_types)
        secret = _new_secret()
        return await self._store.create(who.project_id, new, secret, by=who.key_id, once=once), secret

    async def page(self, who: Principal, part: Slice) -> Page[Endpoint]:
        """The project's endpoints."""
        return await self._store.page(who.project_id, part)

    async def get(self, who: Principal, endpoint_id: UUID) -> Endpoint:
        """One of them. Raises NotFound."""
        return await self._store.get(who.project_id, endpoint_id)

    async def change(self, who: Principal, endpoint_id: UUID, changes: Mapping[str, Any]) -> Endpoint:
        """Set what is named. Raises NotFound, Invalid."""
        self._check(changes.get("url"), changes.get("event_types", ()))
        return await self._store.change(who.project_id, endpoint_id, changes, by=who.key_id)

    async def rotate(
        self, who: Principal, endpoint_id: UUID, once: Once | None = None
    ) -> tuple[Endpoint, str]:
        """The endpoint and its new secret; the old one counts for a day more. Raises NotFound."""
        secret = _new_secret()
        changed = await self._store.rotate(who.project_id, endpoint_id, secret, by=who.key_id, once=once)
        return changed, secret

    async def delete(self, who: Principal, endpoint_id: UUID) -> None:
        """Remove it with its deliveries. Raises NotFound."""
        await self._store.delete(who.project_id, endpoint_id, by=who.key_id)

    async def deliveries(
        self, who: Principal, endpoint_id: UUID, status: str | None, part: Slice
    ) -> Page[Delivery]:
        """What it is owed and was sent, run by run. Raises NotFound."""
        return await self._store.deliveries(who.project_id, endpoint_id, status, part)

    async def redrive(
        self, who: Principal, endpoint_id: UUID, run_id: UUID, once: Once | None = None
    ) -> Delivery:
        """Have a delivery tried again, at once. Raises NotFound, Conflict."""
        return await self._store.redrive(who.project_id, endpoint_id, run_id, by=who.key_id, once=once)

    def _check(self, url: str | None, types: Sequence[str]) -> None:
        faults = []
        if url is not None and (fault := self._addresses.fault_of_any(url)):
            faults.append(FieldError("/url", fault, "address_not_allowed"))
        known = event_types()
        for place, name in enumerate(types):
            if name not in known:
                faults.append(
                    FieldError(f"/event_types/{place}", "no such event type: GET /v1/event-types", "unknown")
                )
        if faults:
            words = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            raise Invalid(f"The webhook endpoint cannot be stored: {words}.", errors=faults)


def _new_secret() -> str:
    return secret_of(secrets.token_bytes(SECRET_BYTES))
