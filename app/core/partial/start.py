"""Find where the value begins in an answer, while the answer is still being written."""

from __future__ import annotations

import re
from typing import Final

from app.core.operate.extract import BLANKS

_LINE_START: Final = 200
"""Code points of a line that say whether it opens a fence."""
_FENCE: Final = re.compile(r"[ \t]*```+[ \t]*([\w+.#-]*)[ \t]*(\S?)")
_JSON: Final = frozenset({"json", "json5", "jsonc"})


class Start:
    """Reads up to the value: one that the text begins with, or that a JSON fence holds.

    A value in the middle of prose is not looked for: only the end of the text tells whether it is meant.
    """

    def __init__(self) -> None:
        self._line = ""
        self._first = True
        """Whether nothing but blanks has come so far."""
        self._inside = False
        """Whether a fence is open that holds something else."""
        self._opened = False
        """Whether a fence is open that holds the value, which has still to begin."""

    def find(self, text: str, at: int) -> int | None:
        """The position in this piece from which it is the value's; None when that is still to come."""
        for position in range(at, len(text)):
            sign = text[position]
            if (self._first or self._opened) and sign not in BLANKS:
                if sign in '{["':
                    return position
                self._first = self._opened = False
            if sign == "\n":
                self._end_line()
            elif len(self._line) < _LINE_START:
                self._line += sign
                if sign in "{[" and self._opens_here():
                    return position
        return None

    def _opens_here(self) -> bool:
        """Whether the line opens a fence and the value behind it."""
        fence = None if self._inside else _FENCE.fullmatch(self._line)
        return fence is not None and fence[1].lower() in _JSON

    def _end_line(self) -> None:
        line, self._line = self._line, ""
        fence = _FENCE.match(line)
        if fence is None:
            return
        if self._inside:
            self._inside = False
        elif not fence[2] and fence[1].lower() in (*_JSON, ""):
            self._opened = True
        else:
            self._inside = "```" not in line.lstrip().lstrip("`")
