"""Ask a gate that stands at another address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from app.core.governance.decision import Effect
from app.core.governance.remote import Remote


class GateFailed(Exception):
    """The gate gave no answer that could be used; the message says why and holds nothing secret."""


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """What the gate says."""

    effect: Effect
    reason: str | None = None


class GateClient(Protocol):
    """Asks gates."""

    async def ask(self, gate: Remote, question: Mapping[str, Any], *, project_id: UUID) -> GateAnswer:
        """The gate's answer to a question made of JSON types. Raises `GateFailed`, also when it is late.

        A question that is to be signed, and cannot be, is not asked.
        """
