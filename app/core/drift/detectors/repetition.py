"""An answer that says the same thing over and over."""

from __future__ import annotations

import re
from typing import Final

from app.core.drift.base import Detector, Passage

CONFIDENCE: Final = 0.8
TAIL: Final = 2_000
"""Code points of the end in which repetitions are looked for."""
PROBE: Final = 32
"""Code points at the very end that must have been written before for a closer look."""
SHORT: Final = 20
"""A passage of fewer code points, like one word, has to fill `SHORT_RUN`."""
SHORT_RUN: Final = 200

# Tables, code, JSON, CSV, settings and lists repeat themselves by nature.
_STRUCTURED: Final = re.compile(
    r"""[|{}\[\]<>=;\\\t_\#*`@$&^~+/]
    | ,(?=[^\s"'’”])
    | ^[ ]{2,}\S
    | ^[ ]*(?:[-•–]|\d+[.)]|[\w-]+:(?:\s|$))
    """,
    re.VERBOSE | re.MULTILINE,
)
_WORDS: Final = re.compile(r"[^\W\d_]+")


class Repetition(Detector):
    """Looks whether the answer's end is one passage of prose, several times in a row.

    What comes back after something else, like a refrain, is none.
    """

    kind = "repetition"

    def __init__(self) -> None:
        """Nothing was written yet."""
        self.tail = ""

    def look(self, passage: Passage) -> float:
        """Find the end's last words before the end; their distance would be the passage's length."""
        self.tail = tail = (self.tail + passage.new)[-TAIL:]
        start = len(tail) - PROBE
        before = tail.rfind(tail[start:], 0, -1) if start > 0 else -1
        if before < 0:
            return 0.0
        length = start - before
        block = tail[-max(length, 2 * PROBE) :]
        run = _least_run(length, block)
        if run > len(tail) or tail[-run:-length] != tail[length - run :]:
            return 0.0
        return CONFIDENCE if _prose(block) else 0.0


def _least_run(length: int, block: str) -> int:
    """How many code points a passage of `length` has to fill by repetition.

    Verse, and answers of one line each, may be the same more often than running text.
    """
    lines = "\n" in block
    if length < SHORT:
        return SHORT_RUN * 4 if lines else SHORT_RUN
    if lines:
        return length * (4 if length >= 120 else 12)
    return length * (3 if length >= 40 else 4)


def _prose(block: str) -> bool:
    """Whether it is words of a language, and nothing else."""
    if _STRUCTURED.search(block) or (block.isascii() and " " not in block):
        return False
    return 2 * sum(map(len, _WORDS.findall(block))) > len(block)


DETECTOR = Repetition
