"""Where a resumed answer meets the text that it should go on from."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

_LEAST_RESTART: Final = 20
_MOST_RESTART: Final = 40
"""Code points from which on a common beginning is no chance: half of the checkpoint, within these."""

_OPENERS: Final = (
    *("sure", "certainly", "of course", "absolutely", "okay", "understood", "got it", "apologies", "sorry"),
    *("here is", "here's", "here are", "continuing", "i'll ", "i will ", "let me ", "let's ", "picking up"),
    *("resuming", "as requested"),
)
"""How a remark about the continuation begins, in lower case."""
_REMARK: Final = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely|okay|understood|got it|apologies|sorry|as requested)\b"
    r"[^\n]{0,40}?)?"
    r"(?:here(?:'s| is| are) the (?:rest|continuation|remain|missing|next part)"
    r"|continuing\b|(?:i'll|i will|let me|let's) (?:continue|pick up|resume)\b"
    r"|picking up (?:from|where)|resuming\b)"
)
_REMARK_WITHIN: Final = 100
"""Code points within which a remark shows itself."""
_BLANKS: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Settled:
    """How the answer goes on."""

    pieces: tuple[str, ...]
    """What follows the checkpoint: one for each chunk that was held, the first one cut; none is empty."""
    overlap: int = 0
    """Code points that repeated the checkpoint."""
    fault: str | None = None
    """Why the answer cannot be joined to the checkpoint; None where it can."""


class Seam:
    """Holds the beginning of a resumed answer back while it may still repeat the checkpoint.

    The longest end of the checkpoint that the answer begins with is taken off it, within the limits; so is
    the whole checkpoint, whatever its length, of a model that starts afresh. Each chunk costs about
    `max_overlap` at most, however long the checkpoint is.
    """

    __slots__ = ("_checkpoint", "_held", "_max", "_min", "_pieces", "_repeated", "_repeats", "_tail")

    def __init__(self, checkpoint: str, *, min_overlap: int, max_overlap: int) -> None:
        """`checkpoint` is not empty."""
        self._checkpoint = checkpoint
        self._min = max(1, min_overlap)
        self._max = max_overlap
        self._tail = checkpoint[-max_overlap:] if max_overlap else ""
        self._pieces: list[str] = []
        self._held = ""
        """What was held, no more of it than can matter."""
        self._repeated = 0
        """How many code points of the checkpoint have been repeated from its beginning."""
        self._repeats = True
        """Whether all of the answer was that."""

    @property
    def length(self) -> int:
        """Code points that were held."""
        return sum(map(len, self._pieces))

    def take(self, text: str) -> Settled | None:
        """Hold one more chunk; None while nothing can be said yet."""
        self._pieces.append(text)
        most = max(self._max, _REMARK_WITHIN)
        if len(self._held) < most:
            self._held = (self._held + text)[:most]
        if self._repeats:
            self._compare(text)
        if self._repeated == len(self._checkpoint):
            return self._settle(self._repeated)
        if self._repeats or self._may_overlap():
            return None
        return self._judge()

    def end(self) -> Settled:
        """The answer has ended, or goes on with something that is no text."""
        return self._judge() or self._settle(0)

    def _judge(self) -> Settled | None:
        overlap = self._overlap()
        if overlap:
            return self._settle(overlap)
        if self._repeated >= max(_LEAST_RESTART, min(_MOST_RESTART, len(self._checkpoint) // 2)):
            return Settled((), fault="the answer starts afresh, and otherwise than before")
        remark = self._remark()
        if remark:
            return Settled((), fault="the answer begins with a remark instead of going on")
        return None if remark is None else self._settle(0)

    def _compare(self, text: str) -> None:
        """Follow how much of the checkpoint is repeated from its beginning."""
        rest = self._checkpoint[self._repeated : self._repeated + len(text)]
        if text.startswith(rest):
            self._repeated += len(rest)
        else:
            self._repeats = False
            self._repeated += next(at for at, (a, b) in enumerate(zip(rest, text, strict=False)) if a != b)

    def _may_overlap(self) -> bool:
        """Whether more of the answer could make the overlap longer than what is there of it."""
        held = self._held
        if len(held) >= self._max:
            return False
        at = self._tail.find(held)
        return at >= 0 and len(held) < len(self._tail) - at >= self._min

    def _overlap(self) -> int:
        """The longest overlap within what is held."""
        held, tail = self._held, self._tail
        for length in range(min(len(held), len(tail)), self._min - 1, -1):
            if tail.endswith(held[:length]):
                return length
        return 1 if held and tail and held[0] == tail[-1] and _is_joined(held[0]) else 0

    def _remark(self) -> bool | None:
        """Whether the answer begins with a remark about itself; None while it may be the beginning of one."""
        said = self._held.lstrip(_BLANKS).lower()
        if not any(said.startswith(opener) or opener.startswith(said) for opener in _OPENERS):
            return False
        if _REMARK.match(said):
            return True
        return False if len(self._held) >= _REMARK_WITHIN or "\n" in said else None

    def _settle(self, overlap: int) -> Settled:
        cut, pieces = overlap, []
        for piece in self._pieces:
            if cut < len(piece):
                pieces.append(piece[cut:])
            cut = max(0, cut - len(piece))
        return Settled(tuple(pieces), overlap)


def _is_joined(character: str) -> bool:
    """Whether the character belongs to the one before it, so that twice is once too often."""
    return character in "\u200d\ufe0f" or unicodedata.combining(character) > 0
