"""An answer that falls from formal into casual language, or the other way, in the middle of a passage."""

from __future__ import annotations

import re
from typing import Final

from app.core.drift.base import WINDOW, Detector, Passage

CONFIDENCE: Final = 0.7
RECENT: Final = 200
"""Code points of the end whose tone is compared with that of the rest of the window."""
LEAST_FORMAL: Final = 2
"""Formal words that make a tone, with no casual one among them."""
LEAST_CASUAL: Final = 3
"""Casual words that make a tone, with no formal one among them."""

_FORMAL: Final = re.compile(
    r"\b(?:furthermore|moreover|nevertheless|nonetheless|notwithstanding|consequently|accordingly|therefore|thus"
    r"|hence|hereby|herein|pursuant|whereas|aforementioned)\b"
)
_CASUAL: Final = re.compile(
    r"\b(?:gonna|wanna|gotta|kinda|lol|lmao|omg|tbh|haha+|dudes?|yeah|yep|nah|bro|hella|ain['’]t)\b"
)
# Parts of casual words: only near one of them is anything compared. Every shift has three casual words at
# least, so it does not matter that some of them are not listed.
_SIGNS: Final = ("nna", "otta", "kinda", "lol", "omg", "haha", "dude", "yeah", "lmao", "tbh")
# A new section, a label, a list or somebody's speech may sound different.
_EXPLAINED: Final = re.compile(r'["“”„«»]|:\s|\n\s*(?:#|\*|-|>|\d+[.)])|\*\*|```')


class ToneShift(Detector):
    """Compares the newest part of the window with the part before it."""

    kind = "tone_shift"

    def __init__(self) -> None:
        """No casual word was seen yet."""
        self.casual_left = 0

    def look(self, passage: Passage) -> float:
        """Compare while a casual word is in the window."""
        recent = passage.lower[-len(passage.new) - 5 :]
        self.casual_left -= len(passage.new)
        for sign in _SIGNS:
            if sign in recent:
                self.casual_left = WINDOW
                break
        if self.casual_left <= 0:
            return 0.0
        before, now = _tone(passage.lower[:-RECENT]), _tone(passage.lower[-RECENT:])
        if before * now >= 0 or _EXPLAINED.search(passage.lower):
            return 0.0
        return CONFIDENCE


def _tone(text: str) -> int:
    """1 for formal, -1 for casual, 0 for neither."""
    casual, formal = len(_CASUAL.findall(text)), len(_FORMAL.findall(text))
    if casual == 0 and formal >= LEAST_FORMAL:
        return 1
    return -1 if formal == 0 and casual >= LEAST_CASUAL else 0


DETECTOR = ToneShift
