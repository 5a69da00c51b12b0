"""Show an answer to a monitor, part by part."""

from __future__ import annotations

from typing import Final

from app.core.drift.monitor import DriftMonitor, DriftOptions, Judgement

CUTS: Final = (3, 170, 100_000)
"""Code points between two checks: one token, what is usual, all at once."""

WHO: Final = ("The baker", "Her uncle", "A ferry", "The old choir", "Our teacher", "The mayor", "A young fox")
DID: Final = ("crossed the square", "kept quiet", "came back from town", "waited by the gate", "sang again")
WHEN: Final = ("before dawn", "in late May", "after the rain", "at noon", "when the bells rang", "all winter")


def found(text: str, every: int = 170) -> set[str]:
    """The kinds that any check of `text` finds, with a check every `every` code points."""
    monitor = DriftMonitor(DriftOptions())
    kinds: set[str] = set()
    for start in range(0, len(text), every):
        judgement = monitor.check(text[start : start + every])
        if isinstance(judgement, Judgement):
            kinds.update(judgement.metrics)
    return kinds


def prose(length: int) -> str:
    """Running text of about `length` code points, without a line break, that does not repeat itself."""
    sentences: list[str] = []
    size = number = 0
    while size < length:
        who, did, when = WHO[number % len(WHO)], DID[number % len(DID)], WHEN[number % len(WHEN)]
        sentences.append(f"{who} {did} {when}, as somebody wrote on page {number + 12}. ")
        size += len(sentences[-1])
        number += 1
    return "".join(sentences)
