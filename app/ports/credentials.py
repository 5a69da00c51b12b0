"""Keep the secrets that projects give, and hand one out to be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.core.credentials import Kind
from app.ports.catalog import Once


class Credentials(Protocol):
    """Hands out secrets, to adapters that send or sign with them."""

    async def secret(self, project_id: UUID, name: str) -> str:
        """The secret of a credential, remembered for a short while.

        Raises UnknownCredential, CredentialUnreadable, Unavailable.
        """


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to be stored."""

    name: str
    kind: Kind
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credential:
    """A row of `credentials`, without its secret."""

    id: UUID
    project_id: UUID
    name: str
    kind: Kind
    key_id: str
    """The sealing key that it is stored under."""
    readable: bool
    """Whether that key is among the operator's."""
    created_at: datetime
    updated_at: datetime
    """When its secret was last given."""
    rotated_at: datetime
    """When it was last sealed: with a new secret, or under a new key."""


class CredentialStore(Protocol):
    """Credentials of projects. `by` is the key that asks, for the audit log."""

    async def all(self, project_id: UUID) -> Sequence[Credential]:
        """Every credential of the project, by name."""

    async def find(self, project_id: UUID, name: str) -> Credential | None:
        """One of them."""

    async def secret(self, project_id: UUID, name: str) -> str | None:
        """Its secret; None when there is no such credential. Raises CredentialUnreadable."""

    async def create(
        self, project_id: UUID, new: NewCredential, *, by: UUID | None, once: Once | None = None
    ) -> Credential:
        """Store a credential.

        Raises Conflict for a name in use and for one credential too many, NoSealingKey, AnsweredBefore,
        KeyReused.
        """

    async def put(self, project_id: UUID, new: NewCredential, *, by: UUID | None) -> tuple[Credential, bool]:
        """Store or replace a credential; whether it is new. Raises Conflict, NoSealingKey."""

    async def delete(self, project_id: UUID, name: str, *, by: UUID | None) -> None:
        """Remove a credential. Raises NotFound, and Conflict while something refers to it."""
