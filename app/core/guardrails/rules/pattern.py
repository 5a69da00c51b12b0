"""Turns of phrase in which a model speaks of itself, hedges, declines, leaks or leaves gaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import ClassVar, Final

from pydantic import Field

from app.core.guardrails.base import Check, NoOptions, Rule, Severity, Tail, Violation, place
from app.core.guardrails.phrases import AHEAD, CATEGORIES, LONGEST, PHRASES, Category, Phrase

REACH: Final = LONGEST + AHEAD
"""Code points before new text where a match may begin that could not be judged earlier; below `KEEP`, so that
the character before a match is always seen too."""

Gates = tuple[tuple[tuple[str, ...], tuple[Phrase, ...]], ...]
"""Literals of which one must be there before any of the phrases is looked for; none is always open."""


class PatternOptions(NoOptions):
    """Which kinds of phrase are looked for."""

    include: list[Category] | None = Field(None, description="Only these; null is all six.")
    exclude: list[Category] = Field(default_factory=list, description="All but these.")


class Pattern(Rule):
    """Names each turn of phrase once, at its first place."""

    name: ClassVar[str] = "pattern"
    severity: ClassVar[Severity] = "warning"
    Options: ClassVar[type[NoOptions]] = PatternOptions

    def start(self) -> Check:
        """A check that has met no phrase yet."""
        assert isinstance(self.options, PatternOptions)
        include, exclude = self.options.include, self.options.exclude
        chosen = tuple(c for c in CATEGORIES if (include is None or c in include) and c not in exclude)
        return _PatternCheck(self, _gates(chosen))


@lru_cache(maxsize=64)
def _gates(categories: tuple[Category, ...]) -> Gates:
    """The phrases of the categories by their doors."""
    doors: dict[tuple[str, ...], list[Phrase]] = {}
    for phrase in PHRASES:
        if phrase.category in categories:
            doors.setdefault(phrase.door, []).append(phrase)
    return tuple((door, tuple(phrases)) for door, phrases in doors.items())


class _PatternCheck(Check):
    def __init__(self, rule: Pattern, gates: Gates) -> None:
        self._rule = rule
        self._gates = gates
        self._met: set[Phrase] = set()

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """What has certainly been said; what may still go on, or ends an answer, waits."""
        lower = tail.lower
        begin = max(0, tail.new - REACH) if len(lower) == len(tail.text) else 0
        found = []
        for phrase in self._near(lower[begin:]):
            if phrase.closes or (phrase.opens and tail.offset > 0):
                continue
            match = phrase.pattern.search(lower, begin)
            # A cut text has no beginning of a line at its own beginning.
            if match is None or (match.start() == 0 and tail.offset > 0):
                continue
            if match.end() + AHEAD <= len(lower):
                found.append(self._finding(phrase, tail.offset + place(tail.text, lower, match.start())))
        return found

    def end(self, text: str) -> Sequence[Violation]:
        """What was not told yet."""
        lower = text.lower()
        return [
            self._finding(phrase, place(text, lower, match.start()))
            for phrase in self._near(lower)
            if (match := phrase.pattern.search(lower)) is not None
        ]

    def _near(self, lower: str) -> Iterable[Phrase]:
        """Phrases that may stand in a text: it has the literals without which they cannot."""
        for door, phrases in self._gates:
            if door and not any(literal in lower for literal in door):
                continue
            for phrase in phrases:
                for literal in phrase.literals:
                    if literal in lower:
                        if phrase not in self._met:
                            yield phrase
                        break

    def _finding(self, phrase: Phrase, position: int) -> Violation:
        self._met.add(phrase)
        kind = phrase.category.replace("_", " ")
        return self._rule.found(f"{kind}: the answer {phrase.says}", position)


RULE = Pattern
