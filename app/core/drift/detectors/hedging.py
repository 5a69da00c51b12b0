"""An answer whose first line agrees and says nothing."""

from __future__ import annotations

import re
from typing import Final

from app.core.drift.base import HeadDetector

CONFIDENCE: Final = 0.5

# The line has to be over: "Sure" may still become "Sure enough", and alone it may be the whole answer.
_ONLY_AGREES: Final = re.compile(
    r"\s*(?:sure(?: thing)?|certainly|of course|absolutely|definitely|no problem|with pleasure)"
    r"[ \t]*[.!]*[ \t]*\r?\n"
)


class Hedging(HeadDetector):
    """Looks at the first line that is not blank, once it has ended."""

    kind = "hedging"

    def read(self, head: str) -> float:
        """Whether the first line is nothing but agreement."""
        return CONFIDENCE if _ONLY_AGREES.match(head.lower()) else 0.0


DETECTOR = Hedging
