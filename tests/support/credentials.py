"""Credentials for adapters under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from app.core.errors import UnknownCredential


@dataclass
class FakeCredentials:
    """`ports.credentials.Credentials` over a dictionary, the same for every project."""

    secrets: Mapping[str, str] = field(default_factory=dict)

    async def secret(self, project_id: UUID, name: str) -> str:
        """See the port."""
        if name not in self.secrets:
            raise UnknownCredential(f"No credential {name!r} is stored in this project.")
        return self.secrets[name]
