"""Ask a gate that stands at another address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from app.core.governance.decision import Effect


class GateFailed(Exception):
    """The gate gave no answer that could be used; the message says why and holds nothing secret."""


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """What the gate says."""

    effect: Effect
    reason: str | None = None


class GateClient(Protocol):
    """Asks gates."""

    async def ask(self, url: str, question: Mapping[str, Any], *, timeout_ms: int) -> GateAnswer:
        """The gate's answer to a question made of JSON types. Raises `GateFailed`, also when it is late."""
