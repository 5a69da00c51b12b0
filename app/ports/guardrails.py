"""Call guardrails that live outside the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from app.core.guardrails.base import CalledRule


class GuardrailFailed(Exception):
    """A guardrail gave no verdict; the message says why."""


class CalledGuardrails(Protocol):
    """All of them."""

    @property
    def rules(self) -> Mapping[str, CalledRule]:
        """By name, as requests may choose them."""

    async def call(self, name: str, text: str, *, final: bool) -> Sequence[Mapping[str, Any]]:
        """What one finds: objects with `message` and, optionally, `severity`, `recoverable`, `position`,
        `suggestion`, checked. `final` says whether the answer has ended. Raises `GuardrailFailed`.
        """
