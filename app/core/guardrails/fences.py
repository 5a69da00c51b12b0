"""Which parts of an answer that goes on are fenced code."""

from __future__ import annotations

import re
from typing import Final

from app.core.guardrails.base import Tail

_FENCE: Final = re.compile(r"(?:^|\n) {0,3}(```|~~~)")
_REACH: Final = 7
"""Code points of the longest fence: one that is split over two tails begins at most so far back."""


class Fences:
    """The fences seen so far; feed it every tail once, in order."""

    __slots__ = ("_kind", "_open", "_seen", "_turns")

    def __init__(self) -> None:
        self._kind = ""
        """The fence that is open now, empty where none is."""
        self._seen = -1
        """Where in the answer the newest fence stands."""
        self._open = False
        """Whether code is open where the newest tail begins."""
        self._turns: list[int] = []
        """Where in that tail code begins or ends, as places in the answer."""

    def feed(self, tail: Tail) -> None:
        """Take in the new part."""
        while self._turns and self._turns[0] < tail.offset:
            del self._turns[0]
            self._open = not self._open
        begin = max(tail.new - _REACH, 0)
        if tail.text.find("```", begin) < 0 and tail.text.find("~~~", begin) < 0:
            return
        # With an offset, `^` would match where the window happens to begin; a search from 1 on cannot.
        for match in _FENCE.finditer(tail.text, max(begin, 1) if tail.offset else begin):
            place, kind = tail.offset + match.start(), match[1]
            if place <= self._seen or self._kind not in ("", kind):
                continue
            self._seen = place
            self._kind = "" if self._kind else kind
            self._turns.append(place)

    def inside(self, place: int) -> bool:
        """Whether a place of the newest tail, given as one of the answer, is code."""
        if not self._turns:
            return self._open
        return self._open ^ (sum(turn <= place for turn in self._turns) % 2 == 1)
