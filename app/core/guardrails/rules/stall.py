"""The stall rule: an answer that stood still for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import Field

from app.core.guardrails.base import Check, NoOptions, Rule, Severity, Tail, Violation


class StallOptions(NoOptions):
    """How long is too long."""

    max_gap_ms: int = Field(
        5_000, ge=1, description="Milliseconds between two checks of the text that are still no stall."
    )


class StallRule(Rule):
    """Finds gaps between two consecutive checks of a growing answer.

    It looks when text has come (`check_intervals.guardrails`), so it notes a stall once it is over, and a
    model that is slow throughout makes a gap too. It is the inter-token limit that ends a stall in progress.
    """

    name: ClassVar[str] = "stall"
    severity: ClassVar[Severity] = "warning"
    Options: ClassVar[type[NoOptions]] = StallOptions

    def __init__(self, options: Mapping[str, Any] | None = None, severity: Severity | None = None) -> None:
        super().__init__(options, severity)
        assert isinstance(self.options, StallOptions)
        self.max_gap_ms = self.options.max_gap_ms

    def start(self) -> Check:
        """A fresh check, for one attempt."""
        return _StallCheck(self)


class _StallCheck(Check):
    """When text was last seen."""

    def __init__(self, rule: StallRule) -> None:
        self._rule = rule
        self._last_ms: float | None = None

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """The gap before this tail, if it is too long; none comes before the first."""
        last_ms, self._last_ms = self._last_ms, tail.now_ms
        if last_ms is None or tail.now_ms - last_ms <= self._rule.max_gap_ms:
            return ()
        gap = f"{tail.now_ms - last_ms:.0f} ms passed between two checks, {self._rule.max_gap_ms} are allowed"
        return (self._rule.found(gap, tail.offset + tail.new),)

    def end(self, text: str) -> Sequence[Violation]:
        """Nothing: the last tail has been judged."""
        return ()


RULE: Final = StallRule
