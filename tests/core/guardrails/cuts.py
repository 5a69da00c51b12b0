"""Show an answer to a rule in parts, as a run does."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from app.core.guardrails.base import KEEP, Check, Rule, Tail, Violation


def feed(check: Check, parts: Iterable[str]) -> list[Violation]:
    """What the check finds before the end."""
    found: list[Violation] = []
    seen = ""
    for part in parts:
        before = seen[-KEEP:]
        text = before + part
        found += check.tail(Tail(text, text.lower(), len(before), len(seen) - len(before)))
        seen += part
    return found


def findings(rule: Rule, parts: Sequence[str]) -> list[Violation]:
    """All that a fresh check finds, before the end and at it."""
    check = rule.start()
    found = feed(check, [part for part in parts if part]) if rule.streaming else []
    return [*found, *check.end("".join(parts))]


def at_cuts(text: str, cuts: Iterable[int]) -> list[str]:
    """The text in parts that end at the cuts, which may lie in any order."""
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places)]
