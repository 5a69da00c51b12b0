"""Who asks, and what they may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from app.core.errors import Forbidden
from app.core.limits.quota import Quota


class Scope(StrEnum):
    """What a key is good for; none of them implies another."""

    READ = "read"
    """See everything of the project."""
    RUN = "run"
    """Change branches and start and cancel runs."""
    APPROVE = "approve"
    """Decide calls that wait for a person."""
    ADMIN = "admin"
    """Change the project's policies, models, tools, credentials, webhooks and keys."""
    OPERATOR = "operator"
    """Make projects, and the keys of every project."""


ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Principal:
    """The one in whose name a request is served."""

    project_id: UUID
    key_id: UUID | None
    """None in development mode and for the bootstrap key."""
    scopes: frozenset[Scope]
    quotas: tuple[Quota, ...] = ()
    """What limits the key and its project; empty where nothing does."""

    def need(self, *scopes: Scope) -> None:
        """Pass if the key has any of the scopes. Raises Forbidden."""
        if self.scopes.isdisjoint(scopes):
            raise Forbidden(f"This needs a key with the scope {_either(scopes)}.")

    def administers(self, project_id: UUID) -> bool:
        """Whether it may change the settings and keys of that project."""
        if Scope.OPERATOR in self.scopes:
            return True
        return Scope.ADMIN in self.scopes and project_id == self.project_id


def _either(scopes: Iterable[Scope]) -> str:
    return " or ".join(repr(scope.value) for scope in scopes)
