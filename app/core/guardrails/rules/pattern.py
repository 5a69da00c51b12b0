"""The pattern rule: phrases that tell of a model talking about itself, refusing, or leaving gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final

import re2
from pydantic import Field

from app.core.guardrails.base import KEEP, Check, NoOptions, Rule, Severity, Tail, Violation
from app.core.guardrails.fences import Fences
from app.core.guardrails.phrases import HEAD, LONGEST, OPENINGS, PHRASES, Category, Phrase

_QUOTES: Final = frozenset("\"'“‘«`")
_CONTEXT: Final = 60
"""Code points before a match in which inline code may begin; the windows of two checks both have them."""

_MESSAGES: Final[Mapping[Category, str]] = {
    "meta_commentary": "the model talks about itself",
    "hedging": "the answer hedges",
    "refusal": "the model refuses",
    "instruction_leak": "instructions show in the answer",
    "placeholders": "the answer has a gap to be filled in",
    "format_collapse": "the answer talks about its own form",
}


class PatternOptions(NoOptions):
    """Which kinds of phrases to look for."""

    include: list[Category] | None = Field(None, min_length=1, description="Only these; absent is all.")
    exclude: list[Category] = Field(default_factory=list, description="None of these.")


class PatternRule(Rule):
    """Finds English phrases outside of code and of quotation marks that begin with them."""

    name: ClassVar[str] = "pattern"
    severity: ClassVar[Severity] = "warning"
    Options: ClassVar[type[NoOptions]] = PatternOptions

    def __init__(self, options: Mapping[str, Any] | None = None, severity: Severity | None = None) -> None:
        super().__init__(options, severity)
        assert isinstance(self.options, PatternOptions)
        included = set(_MESSAGES if self.options.include is None else self.options.include)
        included -= set(self.options.exclude)
        self.phrases = [phrase for phrase in PHRASES if phrase.category in included]
        self.literals = _searched_for(tuple(phrase.literal for phrase in self.phrases))
        self.openings = [phrase for phrase in OPENINGS if phrase.category in included]

    def start(self) -> Check:
        """A fresh check, for one attempt."""
        return _PatternCheck(self)

    def hits(self, lower: str) -> list[int]:
        """Which phrases a text may hold: those whose literal it has."""
        # Half surrogates have no UTF-8; no literal has one.
        return sorted(self.literals.Match(lower.encode("utf-8", "replace")) or ())

    def finding(self, phrase: Phrase, said: str, position: int) -> Violation:
        """What to tell of a phrase that was `said`."""
        return self.found(f"{_MESSAGES[phrase.category]}: {said.strip()!r}", position)


class _PatternCheck(Check):
    """How far each phrase has been looked for."""

    def __init__(self, rule: PatternRule) -> None:
        self._rule = rule
        self._fences = Fences()
        self._done: dict[int, int] = {}
        """Where in the answer the newest match of a phrase ends."""
        self._opened = False

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """What the new part completes, but for a match at the very end: more may belong to its last word."""
        self._fences.feed(tail)
        found = list(self._matches(tail, final=False))
        if not self._opened and tail.offset + len(tail.text) >= HEAD:
            found += self._opening(tail.text)
        return found

    def end(self, text: str) -> Sequence[Violation]:
        """What stands at the very end, and the opening of a short answer."""
        last = text[-KEEP:]
        tail = Tail(last, last.lower(), len(last), len(text) - len(last))
        found = list(self._matches(tail, final=True))
        if not self._opened:
            found += self._opening(text)
        return found

    def _matches(self, tail: Tail, *, final: bool) -> Iterator[Violation]:
        lower = tail.lower
        # `lower` is never shorter than `text`, so nothing new begins before this place in it.
        begin = max(tail.new - LONGEST, 0)
        for index in self._rule.hits(lower[begin:]):
            phrase = self._rule.phrases[index]
            for match in phrase.pattern.finditer(lower, begin):
                if match.end() == len(lower) and not final:
                    break
                start, stop = (_place(tail, at) for at in match.span())
                if tail.offset + start < self._done.get(index, 0):
                    continue
                self._done[index] = tail.offset + stop
                if not self._is_code_or_quoted(tail, start):
                    yield self._rule.finding(phrase, tail.text[start:stop], tail.offset + start)

    def _is_code_or_quoted(self, tail: Tail, start: int) -> bool:
        before = tail.text[max(start - _CONTEXT, 0) : start]
        if before[-1:] in _QUOTES or before.rpartition("\n")[2].count("`") % 2:
            return True
        return self._fences.inside(tail.offset + start)

    def _opening(self, text: str) -> Iterator[Violation]:
        self._opened = True
        head = text[:HEAD]
        lower = head.lower()
        for phrase in self._rule.openings:
            match = phrase.pattern.match(lower)
            if match is not None:
                yield self._rule.finding(phrase, head[: match.end()], 0)


@cache
def _searched_for(literals: tuple[str, ...]) -> re2.Set:
    """One automaton that looks for all of them at once; `in` for each takes several times as long."""
    searched = re2.Set.SearchSet()
    for literal in literals:
        searched.Add(re2.escape(literal))
    searched.Compile()
    return searched


def _place(tail: Tail, at: int) -> int:
    """The place in the text of one in its lower-case form, which is longer for a few letters."""
    if len(tail.lower) == len(tail.text):
        return at
    length = 0
    for place, letter in enumerate(tail.text):
        if length >= at:
            return place
        length += len(letter.lower())
    return len(tail.text)


RULE: Final = PatternRule
