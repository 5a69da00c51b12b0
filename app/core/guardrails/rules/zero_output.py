"""Answers that say nothing: blank, punctuation alone, or one character over and over."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from typing import ClassVar, Final

from app.core.guardrails.base import Check, Rule, Severity, Tail, Violation

REPEATED: Final = 10
"""So many times, and no more than that one character, is no answer."""

_BLANK: Final = re.compile("[\\s\x00-\x1f\x7f\u00ad\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]*+")
"""What leaves no ink: spaces, control characters and marks without width."""
_WORD: Final = re.compile(r"[^\W_]")
_PUNCTUATION: Final = frozenset(string.punctuation)


class ZeroOutputCheck(Check):
    """Looks at one answer when it has ended."""

    def __init__(self, rule: ZeroOutput) -> None:
        self._rule = rule

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """Nothing; an answer that goes on may yet say something."""
        return ()

    def end(self, text: str) -> Sequence[Violation]:
        """In which way the answer says nothing."""
        message = emptiness(text)
        return () if message is None else (self._rule.found(message),)


def emptiness(text: str) -> str | None:
    """In which way a text says nothing; None where it says something."""
    if not text:
        return "the answer is empty"
    if _BLANK.fullmatch(text):
        return "the answer is blank"
    ink = text.strip()
    first = ink[0]
    if len(ink) >= REPEATED and first == ink[1] and ink.count(first) == len(ink):
        return f"the answer is one character, {first!r}, {len(ink)} times"
    if _WORD.search(ink) is None and all(map(_is_mark, set(ink))):
        return "the answer is punctuation only"
    return None


def _is_mark(character: str) -> bool:
    """Whether it is punctuation, of ASCII or by Unicode, or leaves no ink; symbols such as emoji are not."""
    if character in _PUNCTUATION or unicodedata.category(character)[0] == "P":
        return True
    return _BLANK.fullmatch(character) is not None


class ZeroOutput(Rule):
    """The answer says something."""

    name: ClassVar[str] = "zero_output"
    streaming: ClassVar[bool] = False
    severity: ClassVar[Severity] = "error"

    def start(self) -> ZeroOutputCheck:
        """A fresh check, for one attempt."""
        return ZeroOutputCheck(self)


RULE = ZeroOutput
