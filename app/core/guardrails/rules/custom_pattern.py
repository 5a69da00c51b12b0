"""The custom_pattern rule: the caller's own regular expressions, matched in linear time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import re2
from pydantic import Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from app.core.guardrails.base import Check, NoOptions, Rule, Severity, Tail, Violation

MAX_FINDINGS: Final = 20
"""Findings of one check; what comes after them is not looked for."""
MAX_PROGRAM: Final = 2_000
"""Instructions that the patterns of one rule may compile to together: what bounds the time per character."""
_MEMORY: Final = 1 << 20
"""Bytes that one compiled pattern may hold."""


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
    """Finds what the caller's regular expressions match.

    They come from outside, so they run on an engine without backtracking: none can hold the process.
    """

    name: ClassVar[str] = "custom_pattern"
    Options: ClassVar[type[NoOptions]] = CustomPatternOptions

    def __init__(self, options: Mapping[str, Any] | None = None, severity: Severity | None = None) -> None:
        super().__init__(options, severity)
        assert isinstance(self.options, CustomPatternOptions)
        self.patterns = _compiled(self.options.patterns)
        self.messages = [
            self.options.message or f"the answer matches the pattern {pattern!r}"
            for pattern in self.options.patterns
        ]

    def start(self) -> Check:
        """A fresh check, for one attempt."""
        return _CustomPatternCheck(self)


class _CustomPatternCheck(Check):
    """Where each pattern has matched so far."""

    def __init__(self, rule: CustomPatternRule) -> None:
        self._rule = rule
        self._given: list[list[tuple[int, int]]] = [[] for _ in rule.patterns]
        """The places that were told, by pattern, from start to end in code points of the answer."""
        self._open = [-1] * len(rule.patterns)
        """Where a match ended that stood at the very end, by pattern; what begins there is more of it."""
        self._left = MAX_FINDINGS

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """What matches in the tail whatever follows it. The `foo` of `foo\\b` at the very end may yet become
        `foobar`: the next tail or the end decides it.
        """
        data = _encoded(tail.text)
        places: list[tuple[int, int]] = []
        for index, pattern in enumerate(self._rule.patterns):
            if pattern.search(data) is None:
                continue
            for start, stop in _matches(pattern, data, self._begin(index, tail)):
                if not self._left or (stop == len(data) and not _is_certain(pattern, data, start)):
                    break
                span = (tail.offset + _chars(data, start), tail.offset + _chars(data, stop))
                if span[0] == self._open[index]:
                    self._given[index][-1] = (self._given[index][-1][0], span[1])
                else:
                    places += self._give(index, span)
                self._open[index] = span[1] if stop == len(data) else -1
        return self._told(places)

    def end(self, text: str) -> Sequence[Violation]:
        """What matches in the whole answer, but for what was told: also matches longer than a tail."""
        data = _encoded(text)
        places: list[tuple[int, int]] = []
        for index, pattern in enumerate(self._rule.patterns):
            told = list(self._given[index])
            for start, stop in _matches(pattern, data, 0):
                if not self._left:
                    break
                span = (_chars(data, start), _chars(data, stop))
                if not any(_overlap(span, other) for other in told):
                    places += self._give(index, span)
        return self._told(places)

    def _begin(self, index: int, tail: Tail) -> int:
        """At which byte of the tail to go on looking for a pattern."""
        given = self._given[index]
        after = given[-1][1] - tail.offset if given else 0
        # One character stays before the search, so that `^` does not match where the window happens to begin.
        return _bytes(tail.text, max(after, 1 if tail.offset else 0))

    def _give(self, index: int, span: tuple[int, int]) -> list[tuple[int, int]]:
        self._given[index].append(span)
        self._left -= 1
        return [(span[0], index)]

    def _told(self, places: list[tuple[int, int]]) -> list[Violation]:
        return [self._rule.found(self._rule.messages[index], start) for start, index in sorted(places)]


def _compiled(patterns: Sequence[str]) -> list[re2._Regexp]:
    """Raises pydantic's ValidationError that names the first pattern at fault."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    # Without groups to fill, matches are found by the automaton alone.
    options.never_capture = True
    compiled: list[re2._Regexp] = []
    size = 0
    for index, text in enumerate(patterns):
        try:
            pattern = re2.compile(text, options)
        except re2.error as error:
            (reason,) = error.args
            raise _fault(index, text, reason.decode("utf-8", "replace")) from None
        except UnicodeEncodeError:
            raise _fault(index, text, "it is not valid Unicode") from None
        if pattern.search(b"") is not None:
            raise _fault(index, text, "it matches the empty text")
        size += pattern.programsize
        if size > MAX_PROGRAM:
            raise _fault(index, text, "it makes the patterns too large together; repeat or list less")
        compiled.append(pattern)
    return compiled


def _fault(index: int, text: str, reason: str) -> ValidationError:
    kind = PydanticCustomError("bad_pattern", "not a usable pattern: {reason}", {"reason": reason})
    detail = InitErrorDetails(type=kind, loc=("patterns", index), input=text)
    return ValidationError.from_exception_data("CustomPatternOptions", [detail])


def _matches(pattern: re2._Regexp, data: bytes, begin: int) -> Iterator[tuple[int, int]]:
    """The places of matches from byte `begin` on, each after the one before."""
    return (match.span() for match in pattern.finditer(data, begin))


def _is_certain(pattern: re2._Regexp, data: bytes, start: int) -> bool:
    """Whether a match at the very end stays one, be it followed by a word, a blank or a line end."""
    return all(pattern.match(data + more, start) is not None for more in (b"a", b" ", b"\n"))


def _encoded(text: str) -> bytes:
    """Half surrogates have no UTF-8; one byte stands for each, so that places stay right."""
    return text.encode("utf-8", "replace")


def _bytes(text: str, chars: int) -> int:
    return len(_encoded(text[:chars]))


def _chars(data: bytes, offset: int) -> int:
    return len(data[:offset].decode("utf-8"))


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] == other[0] or (one[0] < other[1] and other[0] < one[1])


RULE: Final = CustomPatternRule
