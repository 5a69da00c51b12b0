"""An answer in which the model speaks about itself."""

from __future__ import annotations

import re
from typing import Final

from app.core.drift.base import Detector, Passage

CONFIDENCE: Final = 0.9
RECENT: Final = 200
"""Code points at the end that are looked at, at least."""
OVERLAP: Final = 150
"""Code points before the new text that are looked at again; what `_SELF` matches is hardly ever longer."""

_A_MODEL: Final = (
    r"(?:an ai|an artificial intelligence|an? (?:large )?language model)"
    r"(?: language)?(?: (?:model|assistant|chatbot|system|program))?"
)
_MAKING: Final = r"(?:trained|created|developed|made|built|designed|programmed)"
_VERB: Final = (
    r"(?:['’](?:m|ve|d|ll)| (?:am|was|do|don['’]t|can|can['’]t|cannot|could|have|haven['’]t|lack|must|should"
    r"|will|won['’]t|would|may|might|strive|aim|try))\b"
)
_SELF: Final = re.compile(
    # White space or a mark must stand before it: behind a quotation mark it is somebody else's word.
    r"(?<=[\s(*_—–-])(?:"
    # "As an AI language model, I cannot …"; "As an AI engineer, I …" is a person.
    rf"as {_A_MODEL}(?:,? {_MAKING} by [^.!?\n\"]{{1,40}})?, i{_VERB}"
    # "I cannot feel joy as a language model."
    r"|i(?: (?:cannot|can['’]t|do not|don['’]t|lack)|(?:['’]m| am) (?:unable|not able))"
    rf" [^.!?\n\"]{{1,50}} as {_A_MODEL}[.,;!]"
    # "I'm just an AI."; "I am an AI researcher" is a person.
    rf"|i(?:['’]m| am) (?:just |only |merely |simply )?{_A_MODEL}"
    rf"(?:[.;!)]|, (?:so|not|but|and i|i|without)\b| (?:so|without|that|which|{_MAKING})\b)"
    # What it was trained on.
    r"|my (?:knowledge|training)(?: data)?(?:['’]s)? cut[- ]?off\b"
    r"|as of my la(?:st|test) (?:knowledge|training) (?:update|cut[- ]?off)\b)"
)
# Without one of these in the text `_SELF` cannot match.
_NEEDED: Final = (" an ai", "language model", "an artificial int", "my knowledge", "my training", "of my la")


class MetaCommentary(Detector):
    """Looks for the first person together with a model's nature, in English, outside of quotations."""

    kind = "meta_commentary"

    def look(self, passage: Passage) -> float:
        """Search the end of the answer, and all that is new."""
        recent = passage.lower[-max(RECENT, len(passage.new) + OVERLAP) :]
        for needed in _NEEDED:
            if needed in recent:
                return CONFIDENCE if _speaks_of_itself(passage, len(recent)) else 0.0
        return 0.0


def _speaks_of_itself(passage: Passage, recent: int) -> bool:
    """Whether `_SELF` matches in the last `recent` code points, and not in a quotation."""
    # All of the window, so that a quotation's beginning is more likely to be in sight.
    text = passage.lower
    start = len(text) - recent
    if passage.length == len(passage.window):
        text = "\n" + text
    return any(not _quoted(text, match.start()) for match in _SELF.finditer(text, start))


def _quoted(text: str, at: int) -> bool:
    """Whether a quotation or inline code that begins in the same line is open at `at`."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return bool(line.count('"') % 2 or line.count("`") % 2 or line.count("“") > line.count("”"))


DETECTOR = MetaCommentary
