"""Credentials: keep them for their project's admins, and hand their secrets out to what sends or signs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from app.core.access import Principal
from app.core.credentials import secret_fault
from app.core.errors import FieldError, Invalid, NotFound, UnknownCredential
from app.ports.ambient import Clock
from app.ports.catalog import Once
from app.ports.credentials import Credential, CredentialStore, NewCredential
from app.services.memory import Memory

REMEMBERED_MS: Final = 2_000
"""How long a change made through another process may go unnoticed here."""


class Credentials:
    """A `ports.credentials.Credentials`, and the resource."""

    def __init__(self, store: CredentialStore, clock: Clock) -> None:
        self._store = store
        self._known: Memory[tuple[UUID, str], str | None] = Memory(clock, REMEMBERED_MS, most=10_000)

    # On the hot path, for what refers to one

    async def secret(self, project_id: UUID, name: str) -> str:
        """See the port."""
        found = await self._known.find((project_id, name), lambda: self._store.secret(project_id, name))
        if found is None:
            raise UnknownCredential(
                f"No credential {name!r} is stored in this project: POST /v1/credentials."
            )
        return found

    async def faults(self, project_id: UUID, references: Sequence[tuple[str, str]]) -> list[FieldError]:
        """What is wrong with references to credentials, each a pointer and a name."""
        return [
            FieldError(at, f"no credential {name!r} is stored in this project", UnknownCredential.code)
            for at, name in references
            if await self._store.find(project_id, name) is None
        ]

    # As a resource

    async def list(self, who: Principal) -> Sequence[Credential]:
        """Every credential of the project, by name."""
        return await self._store.all(who.project_id)

    async def get(self, who: Principal, name: str) -> Credential:
        """One of them. Raises NotFound."""
        found = await self._store.find(who.project_id, name)
        if found is None:
            raise NotFound("There is no credential of this name in this project.")
        return found

    async def create(self, who: Principal, new: NewCredential, once: Once | None = None) -> Credential:
        """Store a credential. Raises Invalid, Conflict, NoSealingKey."""
        _check(new)
        made = await self._store.create(who.project_id, new, by=who.key_id, once=once)
        self._known.forget_all()
        return made

    async def put(self, who: Principal, new: NewCredential) -> tuple[Credential, bool]:
        """Store a credential or give it another secret; whether it is new. Raises Invalid, NoSealingKey."""
        _check(new)
        made = await self._store.put(who.project_id, new, by=who.key_id)
        self._known.forget_all()
        return made

    async def delete(self, who: Principal, name: str) -> None:
        """Remove a credential. Raises NotFound, and Conflict while something refers to it."""
        await self._store.delete(who.project_id, name, by=who.key_id)
        self._known.forget_all()


def _check(new: NewCredential) -> None:
    if fault := secret_fault(new.kind, new.secret):
        raise Invalid(f"The credential cannot be stored: {fault}.", errors=[FieldError("/secret", fault)])
