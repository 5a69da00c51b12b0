"""Evaluate the small expressions that callers may send."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol


class ExpressionFailed(Exception):
    """An expression gave no value; the message says why and holds nothing secret."""


class Expressions(Protocol):
    """One expression language."""

    def fault(self, text: str, variables: Collection[str]) -> str | None:
        """What is wrong with an expression that may use these variables; None when it can be evaluated."""

    async def evaluate(self, text: str, variables: Mapping[str, Any]) -> Any:
        """Its value, as JSON has it. Raises `ExpressionFailed`, also when it takes too long."""
