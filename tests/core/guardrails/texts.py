"""Feed a check the way the machine does, cut as a test likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from app.core.guardrails.base import KEEP, Rule, Tail, Violation


def tails(parts: Sequence[str], step_ms: float = 0.0) -> Iterator[Tail]:
    """The tails of an answer that comes in `parts`, `step_ms` apart."""
    before, length = "", 0
    for index, new in enumerate(parts):
        if not new:
            continue
        text = before + new
        yield Tail(text, text.lower(), len(before), length - len(before), index * step_ms)
        length += len(new)
        before = text[-KEEP:]


def found(rule: Rule, parts: Sequence[str] | str) -> list[Violation]:
    """All that one check finds in an answer, in the order it is told."""
    parts = [parts] if isinstance(parts, str) else parts
    check = rule.start()
    told: list[Violation] = []
    if rule.streaming:
        for tail in tails(parts):
            told += check.tail(tail)
    return [*told, *check.end("".join(parts))]


def cut(text: str, places: Sequence[int]) -> list[str]:
    """`text` in parts; places beyond it count from its beginning again."""
    bounds = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[begin:end] for begin, end in pairwise(bounds)] or [""]
