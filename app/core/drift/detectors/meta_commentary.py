"""An answer in which the model speaks about itself."""

from __future__ import annotations

import re
from typing import Final

from app.core.drift.base import Detector, Passage

CONFIDENCE: Final = 0.9
RECENT: Final = 200
"""Code points at the end that are looked at, at least."""
OVERLAP: Final = 130
"""Code points before the new text that are looked at again; no match of `_SELF` is longer."""

# Without one of these in the text none of the patterns can match.
_NEEDED: Final = (
    " an ai",
    "language model",
    " artificial intelligence",
    "my knowledge",
    "my training",
    "of my la",
)

_A_MODEL: Final = r"""
    an?\ (?:ai|artificial\ intelligence|(?:large\ )?language\ model)
    (?:\ language)?(?:\ (?:model|assistant|chatbot|chat\ bot|system|program))?
"""
_MAKING: Final = r"(?:trained|created|developed|made|built|designed|programmed)"

# White space or a mark must stand before it: behind a quotation mark it is somebody else's word.
_SELF: Final = re.compile(
    rf"""(?<=[\s(*_—–-])(?:
    # "As an AI language model, I cannot …". "As an AI engineer, I …" is a person.
      as\ {_A_MODEL} (?:,?\ {_MAKING}\ by\ [^.!?\n"]{{1,40}})? ,\ i
      (?:['’](?:m|ve|d|ll) | \ (?:am|was|do|don['’]t|can|can['’]t|cannot|could|have|haven['’]t|lack|must
         |should|will|won['’]t|would|may|might|strive|aim|try)) \b
    # "I cannot feel joy as a language model."
    | i(?:\ (?:cannot|can['’]t|can\ not|do\ not|don['’]t|lack) | (?:['’]m|\ am)\ (?:unable|not\ able))[ ]
      [^.!?\n"]{{1,50}}\ as\ {_A_MODEL} [.,;!]
    # "I'm just an AI." "I am an AI researcher" is a person.
    | i(?:['’]m|\ am)\ (?:just\ |only\ |merely\ |simply\ )? {_A_MODEL}
      (?: [.;!)] | ,\ (?:so|not|but|and\ i|i|without)\b | \ (?:so|without|that|which|{_MAKING})\b )
    # What it was trained on.
    | my\ (?:knowledge|training)(?:\ data)?(?:['’]s)?\ cut-?\ ?off\b
    | as\ of\ my\ la(?:st|test)\ (?:knowledge|training)\ (?:update|cut-?\ ?off)\b
    )""",
    re.VERBOSE,
)


class MetaCommentary(Detector):
    """Looks for the first person together with a model's nature, in English, outside of quotations."""

    kind = "meta_commentary"

    def look(self, passage: Passage) -> float:
        """Search the end of the answer, and all that is new."""
        recent = passage.lower[-max(RECENT, len(passage.new) + OVERLAP) :]
        for needed in _NEEDED:
            if needed in recent:
                break
        else:
            return 0.0
        # The whole window, so that an opening quotation mark is more likely to be in sight.
        text = passage.lower
        if passage.length == len(passage.window):
            text = "\n" + text
        at = len(text) - len(recent) - 1
        return (
            CONFIDENCE if any(not _quoted(text, m.start()) for m in _SELF.finditer(text, max(at, 0))) else 0.0
        )


def _quoted(text: str, at: int) -> bool:
    """Whether a quotation or inline code that begins in the same line is open at `at`."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return bool(line.count('"') % 2 or line.count("`") % 2 or line.count("“") > line.count("”"))


DETECTOR = MetaCommentary
