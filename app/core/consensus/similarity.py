"""How alike two answers are, from 0 to 1, at a cost bounded by `MAX_COMPARED`.

Texts are compared by the pairs of neighbouring words that they share, so the cost grows with their length
and no faster; an alignment of characters takes minutes for two texts of 100 kB, and finds sentences nearly
equal that differ in the one word that matters. Values are compared leaf by leaf. Nothing here knows what
words mean.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from app.core.json_text import canonical

MAX_COMPARED: Final = 20_000
"""Characters of a text that are looked at; a value with more bytes of JSON is compared as a text."""

# Scripts that are written without blanks between words: there, a character is a word.
_UNSPACED: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_WORD: Final = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")

Path = tuple[str | int, ...]


class Text:
    """A text as it is compared: case, the width of blanks and a final full stop make no difference."""

    def __init__(self, text: str) -> None:
        self.normal = " ".join(unicodedata.normalize("NFC", text).casefold().split()).rstrip(".。 ")

    @cached_property
    def pairs(self) -> Counter[tuple[str, str]]:
        """Neighbouring words, with their number; the ends count as neighbours of the first and last word.

        Of a long text those of both its ends alone.
        """
        text = self.normal
        if len(text) > MAX_COMPARED:
            text = text[: MAX_COMPARED // 2] + text[-MAX_COMPARED // 2 :]
        words = _WORD.findall(text)
        return Counter(pairwise(["", *words, ""]))

    def likeness(self, other: Text) -> float:
        """1 for equal texts, else the part of their pairs of words that they share.

        Where only the ends are compared, the ratio of the lengths is a factor.
        """
        if self.normal == other.normal:
            return 1.0
        shared = (self.pairs & other.pairs).total()
        shorter, longer = sorted((len(self.normal), len(other.normal)))
        factor = shorter / longer if longer > MAX_COMPARED else 1.0
        return factor * 2 * shared / (self.pairs.total() + other.pairs.total())


class Sketch:
    """One answer, made ready to be compared with others."""

    def __init__(self, value: Any) -> None:
        """`value` is any JSON value; a plain text is a string."""
        self.json = canonical(value)
        self._value = value

    @cached_property
    def leaves(self) -> Mapping[Path, Any]:
        """What stands where in the value; texts as `Text`, empty arrays and objects as themselves."""
        leaves: dict[Path, Any] = {}
        waiting: list[tuple[Path, Any]] = [((), self._value)]
        while waiting:
            path, value = waiting.pop()
            if isinstance(value, dict) and value:
                waiting += [((*path, name), member) for name, member in value.items()]
            elif isinstance(value, list) and value:
                waiting += [((*path, at), item) for at, item in enumerate(value)]
            else:
                leaves[path] = Text(value) if isinstance(value, str) else value
        return leaves

    @cached_property
    def as_text(self) -> Text:
        """The whole value as a text."""
        return Text(self._value if isinstance(self._value, str) else self.json.decode())


def similarity(one: Sketch, other: Sketch) -> float:
    """1 for equal values; else the mean likeness of their leaves, where one that only one of them has is 0.

    The same both ways round.
    """
    if one.json == other.json:
        return 1.0
    if max(len(one.json), len(other.json)) > MAX_COMPARED:
        return one.as_text.likeness(other.as_text)
    paths = one.leaves.keys() | other.leaves.keys()
    shared = one.leaves.keys() & other.leaves.keys()
    # An exact sum: the order of a set must not show.
    return math.fsum(_likeness(one.leaves[path], other.leaves[path]) for path in shared) / len(paths)


def _likeness(one: Any, other: Any) -> float:
    if isinstance(one, Text) and isinstance(other, Text):
        return one.likeness(other)
    if type(one) is not type(other) and not (_is_number(one) and _is_number(other)):
        return 0.0
    return 1.0 if one == other else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
