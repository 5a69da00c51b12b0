"""Where a Markdown text is code, so that rules about its prose can leave that alone."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_LINE: Final = re.compile(
    r"^(?P<lead>[ \t>]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]++)*+)(?P<mark>`{3,}+|~{3,}+)(?P<info>[^\n]*+)",
    re.MULTILINE,
)
_LIST: Final = re.compile(r"^[ \t>]*+(?:[-*+]|[0-9]{1,9}[.)])[ \t]", re.MULTILINE)
_TICKS: Final = re.compile(r"`++")
_PARAGRAPH_END: Final = re.compile(r"\n[ \t\r]*+\n")
_INDENTED: Final = 4
"""Columns from which a line outside a list is code as it stands, fence or not."""


@dataclass(slots=True)
class Fences:
    """The fenced code blocks of a text."""

    blocks: list[tuple[int, int]] = field(default_factory=list)
    """Start of the first and end of the last line of each, in code points."""
    unclosed: int | None = None
    """Where the fence stands that opens the last block, if nothing closes that."""


def fences(text: str) -> Fences:
    """Find fenced code blocks as CommonMark does, in lists and quotations as well.

    A line closes a block if it has the same mark, at least as long, nothing behind it, and is not indented as
    if it were code inside the block. A block that nothing closes reaches to the end.
    """
    found = Fences()
    if "```" not in text and "~~~" not in text:
        return found
    first_list = _LIST.search(text)
    lists_from = len(text) if first_list is None else first_list.start()
    opener: re.Match[str] | None = None
    for line in _LINE.finditer(text):
        if opener is None:
            if _opens(line, in_list=line.start() >= lists_from):
                opener = line
        elif _closes(line, opener):
            found.blocks.append((opener.start(), line.end()))
            opener = None
    if opener is not None:
        found.blocks.append((opener.start(), len(text)))
        found.unclosed = opener.start("mark")
    return found


def code_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each inline code span, with its backticks; a span stays within its paragraph."""
    runs = [run.span() for run in _TICKS.finditer(text)]
    if len(runs) < 2:
        return []
    paragraphs = [end.start() for end in _PARAGRAPH_END.finditer(text)]
    twins = _twins(runs)
    spans: list[tuple[int, int]] = []
    at = 0
    while at < len(runs):
        start, twin = runs[at][0], twins[at]
        escaped = start > 0 and text[start - 1] == "\\"
        if twin is None or escaped or bisect(paragraphs, start) != bisect(paragraphs, runs[twin][0]):
            at += 1
            continue
        spans.append((start, runs[twin][1]))
        at = twin + 1
    return spans


def _twins(runs: list[tuple[int, int]]) -> list[int | None]:
    """For each run of backticks, the place of the next one that is as long."""
    twins: list[int | None] = [None] * len(runs)
    next_of: dict[int, int] = {}
    for at in range(len(runs) - 1, -1, -1):
        length = runs[at][1] - runs[at][0]
        twins[at] = next_of.get(length)
        next_of[length] = at
    return twins


def blanked(text: str, ranges: Iterable[tuple[int, int]]) -> str:
    """The text with spaces in place of the given ranges, ascending and apart, so that positions stay."""
    parts: list[str] = []
    at = 0
    for start, end in ranges:
        parts += (text[at:start], " " * (end - start))
        at = end
    return "".join(parts) + text[at:] if parts else text


def _opens(line: re.Match[str], *, in_list: bool) -> bool:
    if line["mark"][0] == "`" and "`" in line["info"]:
        return False
    return in_list or _width(line["lead"]) < _INDENTED


def _closes(line: re.Match[str], opener: re.Match[str]) -> bool:
    lead, mark = line["lead"], line["mark"]
    return (
        mark[0] == opener["mark"][0]
        and len(mark) >= len(opener["mark"])
        and not line["info"].strip()
        and not lead.strip(" \t>")
        and _width(lead) < _width(opener["lead"]) + _INDENTED
    )


def _width(lead: str) -> int:
    return len(lead.rpartition(">")[2].expandtabs(_INDENTED))
