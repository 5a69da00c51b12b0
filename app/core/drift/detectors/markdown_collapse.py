"""An answer of Markdown that turns into one plain line without end."""

from __future__ import annotations

import re
from typing import Final

from app.core.drift.base import Detector, Passage

CONFIDENCE: Final = 0.7
WALL: Final = 1_500
"""Code points without a line break; more than the paragraph that sums up a list has."""
BEGINNING: Final = 16
"""Code points of a wall by which it is known whether it begins with a mark."""
LEAST_LINES: Final = 4
"""Lines that have to be in sight before the wall."""
MARKED: Final = 0.75
"""Share of those lines that have to be Markdown's."""

_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_HEADING: Final = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*]+\*\*:?\s*$)|.*:\s*$")
_MARK: Final = re.compile(r"\s*(?:#{1,6}\s|[-*+]\s|\d+[.)]\s|\||>|\*\*|```|~~~)")
# Data and code are long lines by nature, and what still has marks has not lost them.
_NOT_PLAIN: Final = re.compile(r"[*`|#{}\[\]<>=;_\\]|,\S")


class MarkdownCollapse(Detector):
    """Looks at the lines before a wall of text, once there is such a wall."""

    kind = "markdown_collapse"

    def __init__(self) -> None:
        """Nothing was written yet."""
        self.wall = 0
        self.before = ""
        self.verdict: float | None = None

    def look(self, passage: Passage) -> float:
        """Count what was written since the last line break."""
        line = passage.new.rfind("\n")
        if line >= 0:
            self.wall, self.verdict = 0, None
        if self.wall < BEGINNING:
            self.before = passage.window
        self.wall += len(passage.new) - line - 1
        if self.wall < WALL:
            return 0.0
        if self.verdict is None:
            self.verdict = CONFIDENCE if _was_markdown(self.before) and _plain(passage.window) else 0.0
        return self.verdict


def _was_markdown(before: str) -> bool:
    """Whether the last lines of `before` are Markdown that lets nothing plain and long follow."""
    # The first line is cut; the last one is the wall's beginning.
    *lines, wall = before.split("\n")[1:] or [""]
    lines = [line for line in lines if line.strip()]
    if len(lines) < LEAST_LINES or _MARK.match(wall) or _HEADING.match(lines[-1]):
        return False
    if sum(1 for line in lines if _FENCE.match(line)) % 2:
        return False
    return sum(1 for line in lines if _MARK.match(line)) >= MARKED * len(lines)


def _plain(text: str) -> bool:
    """Whether it is running text of words between spaces, without any mark."""
    return not _NOT_PLAIN.search(text) and 10 * text.count(" ") >= len(text)


DETECTOR = MarkdownCollapse
