"""Read a JSON value while it is being written, at the same cost for each character however long it gets."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from app.core.json_text import MAX_DEPTH, REPLACEMENT, NotJson, pointer, read
from app.core.operate.extract import BLANKS
from app.core.partial.changes import Changes
from app.core.partial.places import Place
from app.core.partial.start import Start

MAX_PATH: Final = 1_000
"""Code points of the longest pointer under which something is shown before the end."""
MAX_LITERAL: Final = 5_000
"""Code points of a number."""

NOTHING: Final = object()
"""No value so far."""

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_LITERAL = re.compile(r"[-+.0-9A-Za-z]*")
_BLANK = re.compile(f"[{BLANKS}]*")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX: Final = frozenset("0123456789abcdefABCDEF")


class _Open:
    """An object or array that has begun."""

    __slots__ = ("items", "names", "path", "place", "value")

    def __init__(self, value: dict[str, Any] | list[Any], path: str, place: Place | None) -> None:
        self.value = value
        self.path = path
        self.place = place
        """None when nothing of it is shown."""
        self.items = 0
        self.names: set[str] = set()


class PartialReader:
    """One answer. What has been shown stays: it is only ever added to."""

    def __init__(self, place: Place) -> None:
        """`place` is what the schema says of the whole value."""
        self.changes = Changes()
        self._root_place = place
        self._root: Any = NOTHING
        self._start = Start()
        self._open: list[_Open] = []
        self._step: Callable[[str, int], int] = self._before
        # Of the scalar that is being read:
        self._pieces: list[str] = []
        self._escape = ""
        self._high = ""
        """The first half of a character, as long as its second may come."""
        self._is_name = False
        self._name = ""
        self._at: tuple[str, Place | None] = ("", None)
        """Path and place of the next value."""
        self._growing = False
        self._length = 0
        """Code points shown of a text that grows."""

    def feed(self, text: str) -> None:
        """Take the next piece of the answer."""
        at = 0
        while at < len(text):
            at = self._step(text, at)

    @property
    def value(self) -> Any:
        """The value so far; `NOTHING` where there is none. It belongs to the reader."""
        if self._growing:
            self._put("".join(self._pieces))
        return self._root

    # Between tokens

    def _before(self, text: str, at: int) -> int:
        found = self._start.find(text, at)
        if found is None:
            return len(text)
        self._at = ("", self._root_place)
        self._step = self._value
        return found

    def _value(self, text: str, at: int) -> int:
        at = _skipped(text, at)
        if at == len(text):
            return at
        sign = text[at]
        if sign == '"':
            self._begin_text(name=False)
        elif sign in "{[":
            return self._begin_container(sign, at)
        elif sign == "]" and self._open and isinstance(self._open[-1].value, list):
            return self._end_container(at)
        elif sign.isalnum() or sign == "-":
            self._is_name, self._pieces, self._length, self._step = False, [], 0, self._literal
            return at
        else:
            return self._give_up(text)
        return at + 1

    def _member(self, text: str, at: int) -> int:
        at = _skipped(text, at)
        if at == len(text):
            return at
        if text[at] == "}":
            return self._end_container(at)
        if text[at] != '"':
            return self._give_up(text)
        self._begin_text(name=True)
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        at = _skipped(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._give_up(text)
        self._step = self._value
        return at + 1

    def _after(self, text: str, at: int) -> int:
        at = _skipped(text, at)
        if at == len(text):
            return at
        sign, container = text[at], self._open[-1].value
        if sign == ",":
            self._next()
            return at + 1
        if sign == ("}" if isinstance(container, dict) else "]"):
            return self._end_container(at)
        return self._give_up(text)

    def _done(self, text: str, at: int) -> int:
        return len(text)

    def _give_up(self, text: str) -> int:
        """No JSON: nothing more is shown."""
        if self._growing:
            self._put("".join(self._pieces))
            self._growing = False
        self._step = self._done
        return len(text)

    def _next(self) -> None:
        """After a comma, or in a container that has just begun."""
        container = self._open[-1]
        if isinstance(container.value, dict):
            self._step = self._member
            return
        place = None if container.place is None else container.place.item(container.items)
        self._at = self._child(container, str(container.items), place)
        self._step = self._value

    def _child(self, container: _Open, name: str, place: Place | None) -> tuple[str, Place | None]:
        if place is None or len(container.path) + len(name) >= MAX_PATH:
            return "", None
        return container.path + pointer(name), place

    # Objects and arrays

    def _begin_container(self, sign: str, at: int) -> int:
        path, place = self._at
        made: dict[str, Any] | list[Any] = {} if sign == "{" else []
        if place is not None:
            place = place.opened("object" if sign == "{" else "array")
        if place is not None:
            self.changes.add(path, made)
            self._put(made)
        else:
            self._withhold()
        self._open.append(_Open(made, path, place))
        if len(self._open) > MAX_DEPTH:
            self._step = self._done
        else:
            self._next()
        return at + 1

    def _end_container(self, at: int) -> int:
        self._open.pop()
        self._end_value()
        return at + 1

    def _end_value(self) -> None:
        if not self._open:
            self._step = self._done
            return
        self._open[-1].items += 1
        self._step = self._after

    def _put(self, value: Any) -> None:
        """Into the object or array that is open, or as the whole."""
        if not self._open:
            self._root = value
            return
        holder = self._open[-1].value
        if isinstance(holder, dict):
            holder[self._name] = value
        elif len(holder) > self._open[-1].items:
            holder[-1] = value
        else:
            holder.append(value)

    def _withhold(self) -> None:
        """Leave the value out; items after it would be taken for it, so of a list nothing more is shown."""
        if self._open and isinstance(self._open[-1].value, list):
            self._open[-1].place = None

    # Scalars

    def _begin_text(self, *, name: bool) -> None:
        self._is_name, self._pieces, self._length, self._step = name, [], 0, self._text
        place = self._at[1]
        if not name and place is not None and place.grows:
            self._growing = True
            self.changes.begin(self._at[0])

    def _text(self, text: str, at: int) -> int:
        found = _PLAIN.match(text, at)
        assert found is not None
        if found.end() > at:
            self._say(found[0])
        at = found.end()
        if at == len(text):
            return at
        if text[at] == '"':
            self._end_text()
        elif text[at] == "\\":
            self._escape, self._step = "\\", self._escaped
        else:
            return self._give_up(text)
        return at + 1

    def _escaped(self, text: str, at: int) -> int:
        self._escape += text[at]
        kind = self._escape[1]
        if kind in _ESCAPES:
            self._say(_ESCAPES[kind])
        elif kind != "u" or (len(self._escape) > 2 and text[at] not in _HEX):
            return self._give_up(text)
        elif len(self._escape) == 6:
            self._say_unit(int(self._escape[2:], 16))
        else:
            return at + 1
        self._step = self._text
        return at + 1

    def _say_unit(self, unit: int) -> None:
        """A 16-bit unit: a character, or one half of it."""
        high, self._high = self._high, ""
        if high and 0xDC00 <= unit < 0xE000:
            self._say(chr(0x10000 + (ord(high) - 0xD800 << 10) + unit - 0xDC00))
            return
        if high:
            self._say(REPLACEMENT)
        if 0xD800 <= unit < 0xDC00:
            self._high = chr(unit)
        else:
            self._say(REPLACEMENT if unit == 0 or 0xDC00 <= unit < 0xE000 else chr(unit))

    def _say(self, piece: str) -> None:
        if self._high:
            self._high, piece = "", REPLACEMENT + piece
        path, place = self._at
        if self._is_name:
            self._pieces.append(piece)
        elif place is not None:
            if self._growing:
                piece = self._within_bounds(piece, place.longest)
                self.changes.append(path, piece)
            self._pieces.append(piece)

    def _within_bounds(self, piece: str, longest: float) -> str:
        """What of a piece is shown: a text that is longer than it may be stops to grow."""
        room = longest - self._length
        if len(piece) > room:
            piece = piece[: int(room)]
        self._length += len(piece)
        return piece

    def _end_text(self) -> None:
        if self._high:
            self._say("")
        text = "".join(self._pieces)
        if self._is_name:
            self._end_name(text)
        elif self._growing:
            self._growing = False
            self._put(text)
            self._end_value()
        else:
            self._end_scalar(text)

    def _end_name(self, name: str) -> None:
        container = self._open[-1]
        if name in container.names:
            self._step = self._done
            return
        container.names.add(name)
        self._name = name
        place = None if container.place is None else container.place.member(name)
        self._at = self._child(container, name, place)
        self._step = self._colon

    def _literal(self, text: str, at: int) -> int:
        found = _LITERAL.match(text, at)
        assert found is not None
        self._pieces.append(found[0])
        self._length += len(found[0])
        if self._length > MAX_LITERAL:
            return self._give_up(text)
        if found.end() == len(text):
            return len(text)
        try:
            value = read("".join(self._pieces))
        except NotJson:
            return self._give_up(text)
        self._end_scalar(value)
        return found.end()

    def _end_scalar(self, value: Any) -> None:
        path, place = self._at
        if place is not None and place.accepts(value):
            self.changes.add(path, value)
            self._put(value)
            holder = self._open[-1] if self._open else None
            if holder is not None and holder.place is not None and isinstance(holder.value, dict):
                holder.place = holder.place.narrowed(self._name, value)
        else:
            self._withhold()
        self._end_value()


def _skipped(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()
