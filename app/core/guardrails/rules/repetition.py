"""The repetition rule: an answer that has begun to go in circles."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from app.core.guardrails.base import Check, Rule, Severity, Tail, Violation
from app.core.guardrails.fences import Fences

_BLOCK: Final = 100
"""Code points that must have been said before, at most as many earlier."""
_STEP: Final = 50
"""Blocks that end at multiples of this are looked at: wherever the cuts are, they are the same ones."""
_VERSE: Final = 66
"""The longest part, in code points, that counts as a loop where it has lines of its own: three of them fill
two blocks. A refrain comes twice."""

_SHORTEST: Final = 20
"""Sentences of up to so many code points may be said as often as it takes."""
_LONGEST: Final = 600
"""Of longer ones nothing is kept."""
_RECENT: Final = 6
"""Sentences among which one must not stand three times."""

# Both begin with a set of characters, which `re` looks for without trying every place. Text in ASCII has one
# of its own, as a set with more takes twice as long.
_BOUNDARY: Final = re.compile(r"[.!?\n。！？](?:(?<=[\n。！？])|[\"')*_”’]?\s)")
_ASCII_BOUNDARY: Final = re.compile(r"[.!?\n](?:(?<=\n)|[\"')*_]?\s)")
_REACH: Final = 2
"""Code points of a boundary before its last."""
_CLOSED: Final = re.compile(r"[.!?。！？][\"')*_”’]?$")
_CODE: Final = frozenset("{}[]<>|=;`\\")
"""What prose has not."""
_ROW: Final = re.compile(r"(?:[-*+#>|•]|\d+[.):]?(?:\s|$)| {4}|\t)")
"""How lines of lists, tables, headings, quotations and code begin."""


class RepetitionRule(Rule):
    """Finds prose that repeats itself: the same sentence three times among six (three times in a row where
    each is a line of its own), or 100 characters that repeat what came just before them.

    Code, tables and lists may repeat themselves. An answer that loops is told once.
    """

    name: ClassVar[str] = "repetition"
    severity: ClassVar[Severity] = "error"

    def start(self) -> Check:
        """A fresh check, for one attempt."""
        return _RepetitionCheck(self)


class _RepetitionCheck(Check):
    """The newest sentences and the place that the blocks have been looked at to."""

    def __init__(self, rule: RepetitionRule) -> None:
        self._rule = rule
        self._fences = Fences()
        self._sentences = _Sentences()
        self._block_end = _BLOCK + _STEP
        self._told = False

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """The first loop that the new part closes."""
        if self._told:
            return ()
        self._fences.feed(tail)
        loop = self._loop(tail)
        sentence = self._sentences.feed(tail, self._fences)
        if loop is not None and (sentence is None or loop[0] <= sentence[0]):
            return self._tell("the last 100 characters repeat what came before them", loop[1])
        return () if sentence is None else self._tell("the same sentence comes three times", sentence[1])

    def end(self, text: str) -> Sequence[Violation]:
        """The sentence that the answer ends with, which no white space follows."""
        if self._told:
            return ()
        last = self._sentences.close(self._fences.inside(len(text)))
        return () if last is None else self._tell("the same sentence comes three times", last[1])

    def _tell(self, message: str, position: int) -> list[Violation]:
        self._told = True
        return [self._rule.found(message, position)]

    def _loop(self, tail: Tail) -> tuple[int, int] | None:
        """Where the first block that was said just before ends, and where it begins."""
        text, end = tail.text, self._block_end - tail.offset
        stop = len(text)
        while end <= stop:
            begin = end - _BLOCK
            at = text.rfind(text[begin:end], max(begin - _BLOCK, 0), end - 1)
            if at >= 0 and _is_loop(text, end, begin - at) and not self._fences.inside(tail.offset + end):
                return tail.offset + end, tail.offset + begin
            end += _STEP
        self._block_end = end + tail.offset
        return None


class _Sentences:
    """Cuts prose into sentences as it comes and counts the newest; work is linear in what is new."""

    def __init__(self) -> None:
        self._rest = ""
        """What follows the last boundary."""
        self._begin = 0
        """Where in the answer that begins."""
        self._skip = False
        """Whether the rest belongs to something too long, whose beginning is gone."""
        self._line_begins = True
        self._row = False
        self._recent: deque[str] = deque(maxlen=_RECENT)

    def feed(self, tail: Tail, fences: Fences) -> tuple[int, int] | None:
        """Take in the new part; where the first sentence that comes too often ends, and where it begins."""
        text = self._rest + tail.text[tail.new :]
        base, done = self._begin, 0
        found: tuple[int, int] | None = None
        boundary = _ASCII_BOUNDARY if text.isascii() else _BOUNDARY
        for match in boundary.finditer(text, max(len(self._rest) - _REACH, 0)):
            sentence = text[done : match.end()]
            place = base + done
            done = match.end()
            if self._take(sentence, fences.inside(place + 1)) and found is None:
                found = base + done, place
            self._skip = False
        self._rest, self._begin = text[done:], base + done
        if len(self._rest) > _LONGEST:
            kept = self._rest[-_REACH:]
            self._note_line(self._rest)
            self._begin += len(self._rest) - len(kept)
            self._rest, self._skip, self._line_begins = kept, True, False
        return found

    def close(self, code: bool) -> tuple[int, int] | None:
        """As `feed`, for what is left when nothing follows; `code` is whether that is code."""
        rest = self._rest
        place = self._begin
        return (place + len(rest), place) if rest and self._take(rest, code) else None

    def _note_line(self, text: str) -> None:
        if self._line_begins:
            self._row = _ROW.match(text) is not None

    def _take(self, text: str, code: bool) -> bool:
        """Whether this sentence comes too often."""
        self._note_line(text)
        alone = self._line_begins and (text[-1] == "\n" or not text[-1].isspace())
        self._line_begins = text[-1] == "\n"
        sentence = " ".join(text.lower().split())
        if not sentence:
            return False
        # What is no prose is kept empty, for it stands between others, as the lines before a refrain do.
        self._recent.append("" if code or self._row or self._skip or len(text) > _LONGEST else sentence)
        if len(sentence) <= _SHORTEST or self._recent.count(sentence) < 3:
            return False
        if alone and list(self._recent)[-3:] != [sentence] * 3:
            return False
        return _CLOSED.search(sentence) is not None and _CODE.isdisjoint(sentence)


def _is_loop(text: str, end: int, period: int) -> bool:
    """Whether what repeats after `period` characters, up to `end`, is prose."""
    whole = text[max(end - 2 * _BLOCK, 0) : end]
    block = whole[-_BLOCK:]
    if not _CODE.isdisjoint(whole):
        return False
    letters = [letter for letter in block if letter.isalpha()]
    if len(letters) < 0.6 * _BLOCK or len(set(letters)) < 3:
        return False
    if "\n" not in block.strip():
        return True
    if any(_ROW.match(line) for line in whole.split("\n")[1:]):
        return False
    return period <= _VERSE and len(whole) == 2 * _BLOCK and whole[period:] == whole[:-period]


RULE: Final = RepetitionRule
