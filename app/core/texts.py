"""Texts that a log already holds: references in place of copies, and what a reader sees of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from app.core.events import TextRef

if TYPE_CHECKING:
    from app.core.record import TokenBlock

MAX_SHOWN = 4096
"""Code points up to which a text is shown in the place of a reference to it."""

_KEY = "$text"
# No string can look like a reference: inside of one, every quotation mark has a backslash before it.
_REFERENCE = re.compile(r'(?:"(\w+)":)?\{"\$text":\[(\d+),(\d+),(\d+)\]\}')


def references(stored: str) -> Iterator[tuple[str, str, str]]:
    """For each reference in a stored JSON text: the first and the last TOKEN, and the length, in digits."""
    for found in _REFERENCE.finditer(stored):
        yield found[2], found[3], found[4]


class Spans:
    """Where the text of each stream stands in a log that is being written."""

    def __init__(self) -> None:
        self._first: dict[int, TokenBlock] = {}
        self._last: dict[int, TokenBlock] = {}

    def began(self, block: TokenBlock) -> None:
        """Note a new block of tokens. It may still grow, or be given another number, at no cost here."""
        self._first.setdefault(block.stream, block)
        self._last[block.stream] = block

    def cut(self, stream: int, offset: int) -> None:
        """Note that so many code points of a stream's text stay."""
        if offset == 0:
            self._first.pop(stream, None)

    def stored(self, value: Any, stream: int | None) -> Any:
        """A meta, or arguments of callbacks, with each `TextRef` in the form in which it is stored.

        That is `{"$text": [from_seq, to_seq, length]}`: the first and the last TOKEN that have made the text
        since it was empty (0 for one that is), and how many code points of it are meant. Raises LookupError
        for a text that the log does not hold.
        """
        match value:
            case TextRef(0):
                return {_KEY: (0, 0, 0)}
            case TextRef(length):
                if stream not in self._first:
                    raise LookupError(f"stream {stream} has no text to refer to")
                return {_KEY: (self._first[stream].seq, self._last[stream].last_seq, length)}
            case dict():
                return {name: self.stored(member, stream) for name, member in value.items()}
            case list() | tuple():
                return [self.stored(item, stream) for item in value]
        return value


class Beginnings:
    """The first code points of every stream's text, followed through a log that is being read."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, str]] = {}
        """By stream: number of the first TOKEN that was told of it since it was empty, and what was told. A
        text that had begun before has another first TOKEN than the references to it say.
        """

    def forget(self) -> None:
        """Know nothing, as before the first entry."""
        self._known.clear()

    def said(self, stream: int, seq: int, pieces: Sequence[str]) -> None:
        """Consecutive tokens; `seq` is the number of the first."""
        first, text = self._known.get(stream, (seq, ""))
        if len(text) < MAX_SHOWN:
            self._known[stream] = first, (text + "".join(pieces))[:MAX_SHOWN]

    def cut(self, stream: int, offset: int) -> None:
        """So many code points stay."""
        first, text = self._known.pop(stream, (0, ""))
        if offset > 0:
            self._known[stream] = first, text[:offset]

    def missing(self, stored: str, stream: int) -> Iterator[int]:
        """For each reference in a stored JSON text that cannot be resolved but has to be: its `from_seq`."""
        for reference in _REFERENCE.finditer(stored):
            from_seq, length = int(reference[2]), int(reference[4])
            if 0 < length <= MAX_SHOWN and not self._begins(stream, from_seq):
                yield from_seq

    def shown(self, stored: str, stream: int) -> str:
        """A stored JSON text as it is read.

        A reference becomes its text; a long one, or one whose text is gone, becomes null, and the object that
        holds it tells where the text stands: `"checkpoint": null, "checkpointRef": {…}`.
        """

        def resolved(reference: re.Match[str]) -> str:
            name, from_seq, to_seq, length = reference.groups()
            key = f'"{name}":' if name else ""
            if length == "0":
                return f'{key}""'
            if int(length) <= MAX_SHOWN and self._begins(stream, int(from_seq)):
                return key + orjson.dumps(self._known[stream][1][: int(length)]).decode()
            where = f'{{"from_seq":{from_seq},"to_seq":{to_seq},"length":{length}}}'
            return f'{key}null,"{name}Ref":{where}' if name else "null"

        return _REFERENCE.sub(resolved, stored)

    def _begins(self, stream: int, seq: int) -> bool:
        """Whether the whole beginning is known of a text whose first TOKEN has this number."""
        return stream in self._known and self._known[stream][0] == seq
