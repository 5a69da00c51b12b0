"""An answer whose letters suddenly look drawn by lot."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Final

from app.core.drift.base import Detector, Passage

CONFIDENCE: Final = 0.6
LEAST_TEXT: Final = 60
"""Code points without which a passage tells nothing."""
HISTORY: Final = 50
"""Passages that are remembered."""
LEAST_HISTORY: Final = 10
"""Passages that make a habit."""
DEVIATIONS: Final = 2.5
LEAST_RISE: Final = 0.9
"""Bits per code point above the mean; prose and code differ by half of that."""


class EntropySpike(Detector):
    """Compares the entropy of what is new with that of the passages before it."""

    kind = "entropy_spike"

    def __init__(self) -> None:
        """Nothing was written yet."""
        self.past: deque[float] = deque(maxlen=HISTORY)
        self.total = self.squares = 0.0

    def look(self, passage: Passage) -> float:
        """Measure what is new; a passage that stands out does not become a habit."""
        new = passage.new
        if len(new) < LEAST_TEXT:
            return 0.0
        entropy = entropy_of(new)
        if len(self.past) >= LEAST_HISTORY:
            mean = self.total / len(self.past)
            variance = max(0.0, self.squares / len(self.past) - mean * mean)
            if entropy > mean + max(LEAST_RISE, DEVIATIONS * math.sqrt(variance)):
                return CONFIDENCE
        if len(self.past) == HISTORY:
            oldest = self.past[0]
            self.total -= oldest
            self.squares -= oldest * oldest
        self.past.append(entropy)
        self.total += entropy
        self.squares += entropy * entropy
        return 0.0


def entropy_of(text: str) -> float:
    """Bits per code point, by the text's own frequencies."""
    size = len(text)
    log2 = math.log2
    return log2(size) - sum([count * log2(count) for count in Counter(text).values()]) / size


DETECTOR = EntropySpike
