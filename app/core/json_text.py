"""Read JSON that comes from outside exactly, and write JSON back with the same digits.

What is read here can be stored: no NUL, no half of a surrogate pair, no NaN, no nesting without end, and no
object in which a key stands twice (two readers of such an object may see two different values).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

MAX_DEPTH = 64
"""Levels of arrays and objects that are accepted unless a caller says otherwise."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_BIG_INTEGER = b"0" * 19
"""19 digits in a row may pass 2**63, from where the fast parser rounds to a float."""

# Every escape is consumed from left to right, so that the backslash of an escaped backslash never counts.
_BYTES_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class NotJson(ValueError):
    """The text is no JSON that we take."""

    def __init__(
        self,
        message: str,
        *,
        offset: int | None = None,
        pointer: str | None = None,
        too_deep: bool = False,
    ) -> None:
        """`offset` counts bytes of the UTF-8 text from 0; `pointer` is an RFC 6901 pointer.

        `too_deep` says that it may well be JSON, and only has too many levels.
        """
        super().__init__(message)
        self.too_deep = too_deep
        self.message = message
        self.offset = offset
        self.pointer = pointer

    def __str__(self) -> str:
        """The message with its place."""
        if self.pointer is not None:
            return f"{self.message} (at {self.pointer!r})"
        if self.offset is not None:
            return f"{self.message} (at byte {self.offset})"
        return self.message


@dataclass(frozen=True, slots=True)
class Mended:
    """A value read leniently."""

    value: Any
    replaced: int
    """How many NULs and lone surrogates became U+FFFD."""


def read(source: bytes | str, *, max_depth: int = MAX_DEPTH, unique_keys: bool = True) -> Any:
    """The value of a JSON text. Raises `NotJson`, and nothing else, for whatever is wrong with it.

    Integers are exact up to 4,300 digits; other numbers are IEEE doubles and must be finite.
    """
    raw = source if isinstance(source, bytes) else _encoded(source)
    if b"\\u" in raw:
        _refuse_unstorable(raw)
    value = _parse(raw)
    _check_shape(raw, value, max_depth, unique_keys)
    return value


def read_mended(text: str, *, max_depth: int = MAX_DEPTH, unique_keys: bool = True) -> Mended:
    """Like `read`, but what cannot be stored is replaced by U+FFFD, and counted, instead of refused."""
    mended, replaced = _UNSTORABLE.subn(REPLACEMENT, text) if not is_storable(text) else (text, 0)
    raw = mended.encode()
    if b"\\u" in raw:
        raw, escapes = _mend_escapes(raw)
        replaced += escapes
    value = _parse(raw)
    _check_shape(raw, value, max_depth, unique_keys)
    return Mended(value, replaced)


def dumps(value: Any) -> bytes:
    """`value`, made of plain JSON types, as compact UTF-8 JSON; integers of any size keep their digits.

    Raises `NotJson` for what is no JSON value.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return _dumps_slowly(value, sort_keys=False)


def copied(value: Any) -> Any:
    """A copy of what was read from JSON that shares nothing with it that could change."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [copied(part) for part in value]
    return value


def canonical(value: Any) -> bytes:
    """The same bytes for equal values, whatever the order of their keys: what digests are made of."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return _dumps_slowly(value, sort_keys=True)


def is_storable(text: str) -> bool:
    """Whether Postgres takes the text as it is."""
    return "\0" not in text and (text.isascii() or _SURROGATE.search(text) is None)


def storable(text: str) -> str:
    """The text with NULs and lone surrogates, which Postgres refuses, as U+FFFD."""
    return text if is_storable(text) else _UNSTORABLE.sub(REPLACEMENT, text)


def joined(first: str | None, second: str | None) -> str:
    """Two compact JSON objects with different keys as one; None counts as an empty one."""
    if second is None or second == "{}":
        return first or "{}"
    if first is None or first == "{}":
        return second
    return f"{first[:-1]},{second[1:]}"


def pointer(*steps: str | int) -> str:
    """The RFC 6901 JSON Pointer of a path; "" for no step at all."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        before = text[: error.start].encode()
        raise NotJson("half of a surrogate pair stands alone", offset=len(before)) from None


def _refuse_unstorable(raw: bytes) -> None:
    for found in _BYTES_ESCAPE.finditer(raw):
        code = found.group(1)
        if code is not None:
            what = "a NUL character" if code == b"0000" else "half of a surrogate pair"
            raise NotJson(f"{what} cannot be stored", offset=found.start())


def _mend_escapes(raw: bytes) -> tuple[bytes, int]:
    replaced = 0

    def mend(found: re.Match[bytes]) -> bytes:
        nonlocal replaced
        if found.group(1) is None:
            return found.group()
        replaced += 1
        return rb"\ufffd"

    return _BYTES_ESCAPE.sub(mend, raw), replaced


def _parse(raw: bytes) -> Any:
    if _BIG_INTEGER in raw.translate(_DIGITS_TO_ZERO):
        return _parse_exactly(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
        raise NotJson(_words(error), offset=offset, too_deep="depth limit" in error.msg) from None


def _parse_exactly(raw: bytes, *, unique_keys: bool = False) -> Any:
    try:
        return json.loads(
            raw.decode(),
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_unique if unique_keys else None,
        )
    except RecursionError:
        raise NotJson("nested too deeply", too_deep=True) from None
    except json.JSONDecodeError as error:
        raise NotJson(_words(error), offset=len(error.doc[: error.pos].encode())) from None
    except UnicodeDecodeError as error:
        raise NotJson("not UTF-8", offset=error.start) from None
    except NotJson:
        raise
    except ValueError:
        raise NotJson("an integer has more than 4,300 digits") from None


def _words(error: json.JSONDecodeError) -> str:
    return error.msg[:1].lower() + error.msg[1:]


def _no_constant(word: str) -> NoReturn:
    raise NotJson(f"{word} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise NotJson("a number is beyond the range of a double")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise NotJson(f"the key {twice[:100]!r} stands twice in one object")
    return made


def _check_shape(raw: bytes, value: Any, max_depth: int, unique_keys: bool) -> None:
    if not isinstance(value, dict | list):
        return
    keys = _count_keys(value, max_depth)
    # Each key owns one colon; colons inside strings only cost the second, exact look. The slow parser then
    # names the key.
    if unique_keys and raw.count(b":") != keys and _STRING.sub(b"", raw).count(b":") != keys:
        _parse_exactly(raw, unique_keys=True)


def _count_keys(value: Any, max_depth: int) -> int:
    """Number of keys in all objects; raises `NotJson` when the value is deeper than allowed."""
    keys, depth, level = 0, 0, [value]
    while level:
        depth += 1
        if depth > max_depth:
            words = f"nested more than {max_depth} levels deep"
            raise NotJson(words, pointer=_deep(value, max_depth), too_deep=True)
        below: list[Any] = []
        for container in level:
            if type(container) is dict:
                keys += len(container)
                below += [v for v in container.values() if type(v) is dict or type(v) is list]
            else:
                below += [v for v in container if type(v) is dict or type(v) is list]
        level = below
    return keys


def _deep(value: Any, max_depth: int) -> str:
    """Pointer to the first container that lies `max_depth` levels down."""
    path: list[str | int] = []
    stack: list[Iterator[tuple[str | int, Any]]] = [_children(value)]
    while stack:
        step, child = next(stack[-1], (None, None))
        if step is None:
            stack.pop()
            if path:
                path.pop()
        elif isinstance(child, dict | list):
            path.append(step)
            if len(path) == max_depth:
                return pointer(*path)
            stack.append(_children(child))
    return ""


def _children(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str | int, Any]]:
    return iter(value.items()) if isinstance(value, dict) else iter(enumerate(value))


def _dumps_slowly(value: Any, *, sort_keys: bool) -> bytes:
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys, separators=(",", ":")
        )
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"no JSON value: {error}") from None
