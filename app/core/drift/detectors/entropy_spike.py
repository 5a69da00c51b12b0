"""An answer that turns into a jumble of characters."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from math import sqrt
from operator import mul
from typing import Final

from app.core.drift.base import Detector, Passage

CONFIDENCE: Final = 0.6
SAMPLE: Final = 128
"""Code points of a sample; all have the same size, or their entropies could not be compared."""
HISTORY: Final = 50
"""Samples that say what is usual for this answer."""
LEAST_HISTORY: Final = 10
"""Samples before which nothing is unusual."""
LEAST_DISTINCT: Final = 58
"""Different characters that a jumble has at least; running text has about 30, code about 40."""
DEVIATIONS: Final = 2.5
"""Standard deviations above the mean from which on a sample is unusual."""
IN_A_ROW: Final = 2
"""Samples in a row that have to be a jumble."""
MANY_LINES: Final = 4
"""Line breaks in a sample that is a list, code or a table."""
LEAST_BROKEN: Final = 6
"""Places in a jumble at which a word is broken by marks."""
LEAST_MIXED: Final = 3
"""Words of a jumble that mix scripts."""

_WORD: Final = re.compile(r"[^\W\d_]+")
# A mark inside of a word, but none of those that stand in addresses, names, numbers and encoded data; only of
# ASCII, since the vowels of some scripts are no letters to a pattern.
_BROKEN: Final = re.compile(r"""(?<=[^\W_])[!"#$%&()*;<>?\[\\\]^`{|}~]+(?=[^\W_])""")
# Between their words is no space, and often none around a foreign one.
_EAST_ASIAN: Final = {"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL"}
_WITHOUT_SPACES: Final = {*_EAST_ASIAN, "THAI", "LAO", "KHMER", "MYANMAR"}


class EntropySpike(Detector):
    """Compares how many different characters a sample has with the samples before it.

    The logarithm of that number is the Hartley entropy, an upper bound of Shannon's that costs a third of it
    and tells a jumble as well.
    """

    kind = "entropy_spike"

    def __init__(self) -> None:
        """Nothing was written yet."""
        self.usual: deque[int] = deque(maxlen=HISTORY)
        self.since = 0
        self.jumbles = 0

    def look(self, passage: Passage) -> float:
        """Take a sample as soon as there is enough new text for one."""
        self.since += len(passage.new)
        if self.since >= SAMPLE:
            self.since = 0
            sample = passage.window[-SAMPLE:]
            distinct = len(set(sample))
            if distinct >= LEAST_DISTINCT and self._unusual(distinct) and _jumbled(sample):
                self.jumbles += 1
            else:
                self.jumbles = 0
                self.usual.append(distinct)
        return CONFIDENCE if self.jumbles >= IN_A_ROW else 0.0

    def _unusual(self, distinct: int) -> bool:
        """Whether so many different characters are out of the ordinary for this answer."""
        if len(self.usual) < LEAST_HISTORY:
            return False
        count = len(self.usual)
        mean = sum(self.usual) / count
        variance = sum(map(mul, self.usual, self.usual)) / count - mean**2
        return distinct > mean + DEVIATIONS * sqrt(max(variance, 0.0))


def _jumbled(sample: str) -> bool:
    """Whether words are broken up by foreign letters or by marks.

    A change of language, encoded data and tables of signs have as many different characters, but whole words,
    no marks, or one thing a line.
    """
    if sample.count("\n") >= MANY_LINES:
        return False
    if len(_BROKEN.findall(sample)) >= LEAST_BROKEN:
        return True
    return sum(map(_mixes_scripts, _WORD.findall(sample))) >= LEAST_MIXED


def _mixes_scripts(word: str) -> bool:
    """Whether it has letters that no language writes side by side."""
    if word.isascii():
        return False
    # A letter's name begins with its script's.
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
    spaced = scripts - _WITHOUT_SPACES
    return len(spaced) > 1 or (spaced != scripts and not spaced <= {"LATIN"})


DETECTOR = EntropySpike
