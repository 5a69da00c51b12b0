"""The answers that are kept under idempotency keys."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from app.ports.catalog import Once


class AnsweredBefore(Exception):
    """The idempotency key was used before, by the same request; nothing was done."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class Replies(Protocol):
    """Finds the answers to earlier requests."""

    async def recall(self, project_id: UUID, once: Once) -> None:
        """Return if the key has no answer yet. Raises AnsweredBefore, KeyReused."""
