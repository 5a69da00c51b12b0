"""Answers that stood still for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from app.core.guardrails.base import Check, NoOptions, Rule, Severity, Tail, Violation


class StallOptions(NoOptions):
    """How long is too long."""

    max_gap_ms: int = Field(5_000, ge=1, le=3_600_000, description="Between two looks at the answer.")


class Stall(Rule):
    """The answer came without a long pause.

    Rules look at every so many tokens, so what is measured is the time from one look to the next: a pause is
    told afterwards. One that lasts is ended by the limit between tokens, `timeout.inter_token_ms`.
    """

    name: ClassVar[str] = "stall"
    severity: ClassVar[Severity] = "warning"
    Options: ClassVar[type[NoOptions]] = StallOptions

    def start(self) -> Check:
        """A fresh check, for one attempt."""
        return _StallCheck(self)


class _StallCheck(Check):
    def __init__(self, rule: Stall) -> None:
        assert isinstance(rule.options, StallOptions)
        self._rule = rule
        self._most_ms = rule.options.max_gap_ms
        self._last_ms: float | None = None

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """The pause since the last look, if it was too long."""
        last_ms, self._last_ms = self._last_ms, tail.now_ms
        if last_ms is None or tail.now_ms - last_ms <= self._most_ms:
            return ()
        told = f"{round(tail.now_ms - last_ms)} ms passed between two looks, more than {self._most_ms}"
        return (self._rule.found(told, tail.offset + tail.new),)

    def end(self, text: str) -> Sequence[Violation]:
        """Nothing more."""
        return ()


RULE = Stall
