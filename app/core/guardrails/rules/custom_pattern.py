"""The custom_pattern rule: the caller's own regular expressions, at a bounded cost per character."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from app.core.guardrails.base import KEEP, MAX_WEIGHT, Check, NoOptions, Rule, Severity, Tail, Violation
from app.core.guardrails.client_patterns import BadPattern, ClientPattern

STEP: Final = 16
"""Code points that wait for a look, for each unit of weight: each look begins `KEEP` before what is new, so
heavy patterns look less often."""
AT_ONCE: Final = 4
"""Up to this weight nothing waits."""
REACH: Final = 1_000_000
"""Code points times weight that are looked at once more at the end, for matches longer than `KEEP`."""


class CustomPatternOptions(NoOptions):
    """What must not stand in an answer."""

    patterns: list[Annotated[str, Field(min_length=1, max_length=500)]] = Field(
        min_length=1,
        max_length=32,
        description="Regular expressions of RE2: case-sensitive, without look-around and backreferences.",
    )
    message: str | None = Field(
        None, min_length=1, max_length=500, description="What a finding says; absent names the pattern."
    )


class CustomPatternRule(Rule):
    """Tells the first match of each of the caller's regular expressions, as soon as it stands.

    Matches of up to `KEEP` code points are found wherever they are, longer ones where they lie in one look:
    while the answer is written that is the new part and `KEEP` before it, at the end the last `REACH`.
    """

    name: ClassVar[str] = "custom_pattern"
    Options: ClassVar[type[NoOptions]] = CustomPatternOptions

    def __init__(self, options: Mapping[str, Any] | None = None, severity: Severity | None = None) -> None:
        super().__init__(options, severity)
        assert isinstance(self.options, CustomPatternOptions)
        self.patterns = _compiled(self.options.patterns)
        self.message = self.options.message
        self.weight = sum(pattern.weight for pattern in self.patterns)
        self.step = STEP * max(0, self.weight - AT_ONCE)
        """Code points that are new in a look, at least."""

    def start(self) -> Check:
        """A fresh check, for one attempt."""
        return _CustomPatternCheck(self)


class _CustomPatternCheck(Check):
    def __init__(self, rule: CustomPatternRule) -> None:
        self._rule = rule
        self._left = list(rule.patterns)
        """Those that were not met yet."""
        self._text = ""
        """What the next look sees: at most `KEEP` code points of the one before, then what is new."""
        self._begin = 0
        """Where that begins in the answer, in code points."""
        self._new = 0
        """How much of it is new."""

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """What matches whatever follows. The `foo` of `foo\\b` at the very end may yet become `foobar`: the
        next look decides it.
        """
        if not self._left:
            return []
        new = tail.text[tail.new :]
        self._text += new
        self._new += len(new)
        if self._new < self._rule.step:
            return []
        found = self._look(self._text, self._begin, ended=False)
        self._begin += max(0, len(self._text) - KEEP)
        self._text = self._text[-KEEP:]
        self._new = 0
        return found

    def end(self, text: str) -> Sequence[Violation]:
        """What was not met so far."""
        # What waits for a look, `KEEP` before it included, is always much less than that.
        begin = max(0, len(text) - REACH // self._rule.weight)
        return self._look(text[begin:], begin, ended=True)

    def _look(self, text: str, begin: int, *, ended: bool) -> list[Violation]:
        # Half surrogates have no UTF-8; one byte stands for each, so that places stay right.
        raw = text.encode("utf-8", "replace")
        # One character stays before the search, so that `^` does not match where the look happens to begin.
        context = len(text[:1].encode("utf-8", "replace")) if begin else 0
        found: list[Violation] = []
        left: list[ClientPattern] = []
        for pattern in self._left:
            span = pattern.search(raw, context)
            if span is None or (not ended and pattern.anchored and span[1] == len(raw)):
                left.append(pattern)
                continue
            message = self._rule.message or f"the answer matches the pattern {pattern.source!r}"
            found.append(self._rule.found(message, begin + len(raw[: span[0]].decode("utf-8"))))
        self._left = left
        return sorted(found, key=lambda violation: violation.position or 0)


def _compiled(sources: Sequence[str]) -> list[ClientPattern]:
    """Raises pydantic's ValidationError that names the first pattern at fault."""
    compiled: list[ClientPattern] = []
    weight = 0
    for index, source in enumerate(sources):
        try:
            compiled.append(ClientPattern(source))
        except BadPattern as error:
            raise _fault(index, source, str(error)) from None
        weight += compiled[-1].weight
        if weight > MAX_WEIGHT:
            raise _fault(index, source, "it makes the patterns too heavy together; repeat or list less")
    return compiled


def _fault(index: int, source: str, reason: str) -> ValidationError:
    kind = PydanticCustomError("bad_pattern", "not a usable pattern: {reason}", {"reason": reason})
    detail = InitErrorDetails(type=kind, loc=("patterns", index), input=source)
    return ValidationError.from_exception_data("CustomPatternOptions", [detail])


RULE: Final = CustomPatternRule
