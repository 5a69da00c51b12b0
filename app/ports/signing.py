"""Sign what is sent to the servers of clients."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class NotSigned(Exception):
    """There is no secret to sign with; the message says why and holds nothing of it."""


class Credentials(Protocol):
    """Secrets that projects have stored."""

    async def secret(self, project_id: UUID, name: str) -> str:
        """The secret of this name. Raises NotFound, or another AppError, when it cannot be had."""
