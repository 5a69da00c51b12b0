"""Patterns with `*`, `?` and `[…]`, as `fnmatch.fnmatchcase` has them, in time linear in the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import re2

MAX_PATTERN: Final = 200
"""Characters of a pattern."""
MAX_SINGLE: Final = 8
"""How many `?` and `[…]` a pattern may have: with more of them it could cost a thousand times as much."""

_MEMORY: Final = 1 << 20
"""Bytes for the states of one pattern."""


def fault(pattern: str) -> str | None:
    """What is wrong with a pattern; None when it can be matched."""
    if not 1 <= len(pattern) <= MAX_PATTERN:
        return f"a pattern has 1 to {MAX_PATTERN} characters"
    if pattern.count("?") + pattern.count("[") > MAX_SINGLE:
        return f"a pattern has at most {MAX_SINGLE} of ? and ["
    return None


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern describes the whole text; upper and lower case differ."""
    return pattern == "*" or _compiled(pattern).fullmatch(text) is not None


@lru_cache(4_096)
def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return re2.compile(f"(?s:{_translated(pattern)})", options)


def _translated(pattern: str) -> str:
    out, place = [], 0
    while place < len(pattern):
        character, place = pattern[place], place + 1
        if character == "*":
            out.append(".*")
        elif character == "?":
            out.append(".")
        elif character == "[" and (end := _end_of_class(pattern, place)):
            out.append(_class(pattern[place:end]))
            place = end + 1
        else:
            out.append(re2.escape(character))
    return "".join(out)


def _end_of_class(pattern: str, start: int) -> int:
    """Where the bracket that belongs to the one before `start` stands; 0 when it is none, but a character."""
    first = start + 1 if pattern[start : start + 1] == "!" else start
    # A closing bracket that comes first is a member.
    return max(pattern.find("]", first + 1), 0)


def _class(inside: str) -> str:
    negated, members = inside.startswith("!"), inside.removeprefix("!")
    ranges, place = [], 0
    while place < len(members):
        if members[place + 1 : place + 2] == "-" and place + 2 < len(members):
            first, last = members[place], members[place + 2]
            place += 3
            if first <= last:
                ranges.append(f"{_member(first)}-{_member(last)}")
        else:
            ranges.append(_member(members[place]))
            place += 1
    if not ranges:
        # Only ranges that run backwards: nothing is in it.
        return "." if negated else r"[^\x{0}-\x{10FFFF}]"
    return f"[{'^' if negated else ''}{''.join(ranges)}]"


def _member(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"
