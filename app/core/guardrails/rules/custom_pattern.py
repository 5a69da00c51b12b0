"""The caller's own patterns, searched for in linear time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import re2
from pydantic import Field, field_validator

from app.core.guardrails.base import Check, NoOptions, Rule, Severity, Tail, Violation

MAX_PATTERNS: Final = 32
MAX_CHARS: Final = 500
"""Of one pattern."""
MAX_MEMORY: Final = 1 << 20
"""Bytes that one compiled pattern may take."""
MAX_FINDINGS: Final = 20
"""Findings of one answer; more would say nothing new."""


def compiled(pattern: str) -> Any:
    """The pattern, as RE2 has it: no look-around and no back-references. Raises ValueError."""
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        told = error.args[0]
        raise ValueError(told.decode() if isinstance(told, bytes) else str(told)) from None


class CustomPatternOptions(NoOptions):
    """What must not be said."""

    patterns: list[Annotated[str, Field(min_length=1, max_length=MAX_CHARS)]] = Field(
        min_length=1,
        max_length=MAX_PATTERNS,
        description="RE2 syntax; case counts unless a pattern begins with (?i).",
    )
    message: str | None = Field(None, min_length=1, max_length=500, description="What a finding says.")

    @field_validator("patterns")
    @classmethod
    def _sound(cls, patterns: list[str]) -> list[str]:
        for index, pattern in enumerate(patterns):
            try:
                compiled(pattern)
            except ValueError as error:
                raise ValueError(f"pattern {index} cannot be used: {error}") from None
        return patterns


class CustomPattern(Rule):
    """The answer holds none of the caller's patterns."""

    name: ClassVar[str] = "custom_pattern"
    severity: ClassVar[Severity] = "error"
    Options: ClassVar[type[NoOptions]] = CustomPatternOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.options, CustomPatternOptions)
        self.patterns = [compiled(pattern) for pattern in self.options.patterns]
        self.message = self.options.message

    def start(self) -> Check:
        """A fresh check, for one attempt."""
        return _CustomPatternCheck(self)


class _CustomPatternCheck(Check):
    def __init__(self, rule: CustomPattern) -> None:
        self._rule = rule
        self._told: list[int] = [-1] * len(rule.patterns)
        """By pattern, up to where its matches were told, in code points; -1 for none."""
        self._left = MAX_FINDINGS

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """Matches that end in what is new."""
        return self._search(tail.text, tail.offset, tail.new)

    def end(self, text: str) -> Sequence[Violation]:
        """Matches that began too far back to be seen while the answer was written."""
        return self._search(text, 0, 0)

    def _search(self, text: str, offset: int, new: int) -> list[Violation]:
        found: list[Violation] = []
        for index, pattern in enumerate(self._rule.patterns):
            for match in pattern.finditer(text) if pattern.search(text) else ():
                start, end = match.span()
                # One that was told may have grown since; it is the same one.
                if end <= new or start == end or offset + start <= self._told[index]:
                    continue
                if self._left == 0:
                    return found
                self._left -= 1
                self._told[index] = offset + end - 1
                said = self._rule.message or f"the answer matches pattern {index}"
                found.append(self._rule.found(said, offset + start))
        return found


RULE = CustomPattern
