"""Find the JSON values in a text that is not only JSON; one pass, and no guessing.

Whatever stands between a bracket and the one that closes it is one region; it is JSON, perhaps with commas
too many, or it is skipped whole, so that no fragment of a broken value is ever taken for the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from app.core.json_text import NotJson, read_mended
from app.core.operate.other_quotes import in_json_quotes

MAX_VALUES: Final = 64
"""Values that one text may hold; with more there is no telling which is meant."""

# Byte-order mark, zero-width and other invisible blanks around a value.
INVISIBLE: Final = "\ufeff\u200b\u200c\u200d\u2060\u00a0"
BLANKS: Final = " \t\r\n" + INVISIBLE

_FENCE = re.compile(
    r"^[ \t]*```+[ \t]*(?P<language>[\w+.#-]*)[ \t]*(?P<body>.*?)(?:^[ \t]*```+|```+[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_JSON_FENCES: Final = frozenset({"json", "json5", "jsonc"})
_OTHER_FENCES: Final = _JSON_FENCES | {"", "python", "py"}

_OPENING = re.compile(r"[{\[]")
# A string ends with its line at the latest: JSON strings hold no line breaks.
_MARK = re.compile(
    r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
    rf"|[{{}}\[\]{INVISIBLE}]"
    rf"|,(?=[\s{INVISIBLE}]*[}}\]])"
)


@dataclass(frozen=True, slots=True)
class Found:
    """One value in the text."""

    value: Any
    corrections: tuple[str, ...]
    """What had to be done to read it, in order."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a text holds."""

    found: tuple[Found, ...]
    unfinished: bool
    """Whether the text ends inside a value."""


def trimmed(text: str) -> str:
    """The text without the blanks around it, visible or not."""
    return text.strip(BLANKS)


def extract(text: str) -> Extraction:
    """The values of a text: those in its JSON fences if there are any, else those in its prose.

    A text that is one value as a whole, but for its quotes, holds that one: what looks like JSON in it may
    stand inside a string.
    """
    whole = _in_other_quotes(text)
    return Extraction((whole,), unfinished=False) if whole else _in_json(text)


def _in_json(text: str) -> Extraction:
    fenced: list[Found] = []
    unfinished = False
    rest: list[str] = []
    end = 0
    for fence in _FENCE.finditer(text):
        rest.append(text[end : fence.start()])
        end = fence.end()
        inside = _in_fence(fence["language"].lower(), trimmed(fence["body"]))
        fenced += inside.found
        unfinished = unfinished or inside.unfinished
    if fenced or unfinished:
        return Extraction(tuple(fenced), unfinished)
    rest.append(text[end:])
    found: list[Found] = []
    for part in rest:
        outside = _regions(part, ("prose",))
        found += outside.found
        unfinished = unfinished or outside.unfinished
    return Extraction(tuple(found), unfinished)


def _in_other_quotes(text: str) -> Found | None:
    body, corrections = trimmed(text), []
    fence = _FENCE.match(body)
    if fence and fence.end() == len(body) and fence["language"].lower() in _OTHER_FENCES:
        body, corrections = trimmed(fence["body"]), ["fence"]
    if body[:1] not in ("{", "[") or body[-1:] not in ("}", "]"):
        return None
    rewritten = in_json_quotes(body)
    return rewritten and _read(rewritten[0], (*corrections, *rewritten[1]))


def _in_fence(language: str, body: str) -> Extraction:
    """What a fence holds; one of another language holds nothing, one of none only what is JSON throughout."""
    if language and language not in _JSON_FENCES:
        return Extraction((), unfinished=False)
    whole = _read(body, ("fence",))
    if whole:
        return Extraction((whole,), unfinished=False)
    if language or body[:1] in ("{", "["):
        return _regions(body, ("fence",))
    return Extraction((), unfinished=False)


def _regions(text: str, corrections: tuple[str, ...]) -> Extraction:
    found: list[Found] = []
    position = 0
    while (opening := _OPENING.search(text, position)) and len(found) <= MAX_VALUES:
        region = _region(text, opening.start())
        if region is None:
            return Extraction(tuple(found), unfinished=True)
        whole = opening.start() == 0 and region.end == len(text)
        value = region.read(text, () if whole and corrections == ("prose",) else corrections)
        if value:
            found.append(value)
        position = region.end
    return Extraction(tuple(found), unfinished=False)


@dataclass(frozen=True, slots=True)
class _Region:
    """From a bracket to the one that closes it."""

    start: int
    end: int
    commas: tuple[int, ...]
    """Positions of commas before a closing bracket."""
    blanks: tuple[int, ...]
    """Positions of invisible characters outside of strings."""

    def read(self, text: str, corrections: tuple[str, ...]) -> Found | None:
        edits = sorted([*((at, "") for at in self.commas), *((at, " ") for at in self.blanks)])
        if not edits:
            return _read(text[self.start : self.end], corrections)
        pieces: list[str] = []
        position = self.start
        for at, instead in edits:
            pieces += (text[position:at], instead)
            position = at + 1
        pieces.append(text[position : self.end])
        made = [*(["trailing_comma"] if self.commas else []), *(["blanks"] if self.blanks else [])]
        return _read("".join(pieces), (*corrections, *made))


def _region(text: str, start: int) -> _Region | None:
    """The region that begins at `start`; None when the text ends in it."""
    depth = 0
    commas: list[int] = []
    blanks: list[int] = []
    for mark in _MARK.finditer(text, start):
        sign = mark.group()[0]
        if sign in "{[":
            depth += 1
        elif sign == ",":
            commas.append(mark.start())
        elif sign in INVISIBLE:
            blanks.append(mark.start())
        elif sign in "}]":
            depth -= 1
            if depth == 0:
                return _Region(start, mark.end(), tuple(commas), tuple(blanks))
    return None


def _read(text: str, corrections: tuple[str, ...]) -> Found | None:
    try:
        mended = read_mended(text)
    except NotJson:
        return None
    return Found(mended.value, (*corrections, *replaced(mended.replaced)))


def replaced(count: int) -> Iterator[str]:
    """The correction for characters that cannot be stored, if there were any."""
    if count:
        yield "unstorable_characters"
