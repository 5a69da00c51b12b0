"""An answer that falls from formal into casual language, or the other way, in the middle of a passage."""

from __future__ import annotations

import re
from typing import Final

from app.core.drift.base import WINDOW, Detector, Passage

CONFIDENCE: Final = 0.7
RECENT: Final = 200
"""Code points of the end whose tone is compared with that of the rest of the window."""
LEAST_FORMAL: Final = 2
"""Formal words that make a tone; each casual one takes one away."""
LEAST_CASUAL: Final = 3
"""Casual words that make a tone; each formal one takes one away."""

_FORMAL: Final = (
    *("therefore", "thus", "hence", "moreover", "furthermore", "consequently", "nevertheless"),
    *("accordingly", "hereby", "whereas"),
)
_FORMAL_WORD: Final = re.compile(rf"\b(?:{'|'.join(_FORMAL)})\b")
_CASUAL_WORD: Final = re.compile(
    r"\b(?:gonna|wanna|gotta|kinda|lol|lmao|omg|tbh|haha+|dudes?|yeah|yep|nah|bro|hella|ain['’]t)\b"
)
# Parts of casual words. Only near one of them is anything compared; a shift has several casual words, so it
# does not matter that some of them are not here.
_SIGNS: Final = ("nna", "otta", "kinda", "lol", "haha", "dude", "yeah")
# A new section, a label, a list or somebody's speech may sound different.
_EXPLAINED: Final = re.compile(r'["“”„«»]|:\s|\n\s*(?:#|\*|-|>|\d+[.)])|\*\*|```')


class ToneShift(Detector):
    """Compares the newest part of the window with the part before it."""

    kind = "tone_shift"

    def __init__(self) -> None:
        """No casual word was seen yet."""
        self.casual_left = 0

    def look(self, passage: Passage) -> float:
        """Compare while words of both kinds are in the window."""
        # Also the end of what was new before: a word may be written across two looks.
        recent = passage.lower[-len(passage.new) - 5 :]
        self.casual_left -= len(passage.new)
        for sign in _SIGNS:
            if sign in recent:
                self.casual_left = WINDOW
                break
        if self.casual_left > 0:
            for word in _FORMAL:
                if word in passage.lower:
                    return CONFIDENCE if _shifts(passage.lower) else 0.0
        return 0.0


def _shifts(text: str) -> bool:
    """Whether the two parts of the window have opposite tones, and nothing tells why."""
    return _tone(text[:-RECENT]) * _tone(text[-RECENT:]) < 0 and not _EXPLAINED.search(text)


def _tone(text: str) -> int:
    """1 for formal, -1 for casual, 0 for neither."""
    formality = len(_FORMAL_WORD.findall(text)) - len(_CASUAL_WORD.findall(text))
    if formality >= LEAST_FORMAL:
        return 1
    return -1 if formality <= -LEAST_CASUAL else 0


DETECTOR = ToneShift
