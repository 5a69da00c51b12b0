"""Make a JSON value that can be stored of whatever a tool returned."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel

from app.core.action.verdict import Succeeded
from app.core.json_text import MAX_DEPTH, NotJson, canonical, dumps, storable

MAX_OUTPUT: Final = 1024 * 1024
"""Bytes of JSON that are stored for one tool output."""

UNSERIALIZABLE: Final = "<unserializable>"
"""Stands where a value has no JSON form."""


@dataclass(frozen=True, slots=True)
class Output:
    """What is stored of a tool's result."""

    value: Any
    truncated: bool = False
    """True when the result was larger than `MAX_OUTPUT`: `value` is then a text, the beginning of the result
    (of its JSON, unless it was a text itself)."""


def output_of(result: Any, max_bytes: int = MAX_OUTPUT) -> Output:
    """The result as a JSON value of at most `max_bytes` bytes."""
    conversion = _Conversion(max_bytes)
    value = conversion.of(result, MAX_DEPTH)
    try:
        text = dumps(value)
    except NotJson:
        return Output(UNSERIALIZABLE)
    if len(text) <= max_bytes:
        return Output(value)
    if isinstance(value, str):
        return Output(_cut(value.encode(), max_bytes), truncated=True)
    return Output(_cut(text, max_bytes), truncated=True)


def succeeded(result: Any) -> Succeeded:
    """The verdict on a call whose tool returned `result`."""
    output = output_of(result)
    return Succeeded(output.value, output.truncated)


def _cut(text: bytes, max_bytes: int) -> str:
    """The longest beginning whose JSON string has at most `max_bytes` bytes; escapes count as written."""
    fits, too_long = 0, min(len(text), max_bytes) + 1
    while too_long - fits > 1:
        size = (fits + too_long) // 2
        if len(dumps(_beginning(text, size))) <= max_bytes:
            fits = size
        else:
            too_long = size
    return _beginning(text, fits)


def _beginning(text: bytes, size: int) -> str:
    return text[:size].decode(errors="ignore")  # No half of a character at the end.


class _Conversion:
    """Converts until so much was produced that the rest would be cut off anyway."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._open: set[int] = set()

    def of(self, value: Any, depth: int) -> Any:
        try:
            return self._of(value, depth)
        except Exception:  # A foreign object's own methods may raise anything, asked for its class even.
            return UNSERIALIZABLE

    def _of(self, value: Any, depth: int) -> Any:
        match value:
            case None | bool():
                self._left -= 4
                return value
            case str():
                return self._text(value)
            case int():
                self._left -= 1
                return int(value)
            case float():
                self._left -= 3
                return float(value) if math.isfinite(value) else UNSERIALIZABLE
            case _:
                return self._compound(value, depth)

    def _text(self, value: str) -> str:
        whole = str.__str__(value) if type(value) is not str else value
        kept = storable(whole[: max(self._left, 0) + 1])
        self._left -= len(kept) + 2
        return kept

    def _compound(self, value: Any, depth: int) -> Any:
        plain = _scalar_text(value)
        if plain is not None:
            return self._text(plain)
        if depth == 0 or id(value) in self._open:
            return UNSERIALIZABLE
        self._open.add(id(value))
        try:
            return self._members(value, depth - 1)
        finally:
            self._open.discard(id(value))

    def _members(self, value: Any, depth: int) -> Any:
        match value:
            case Enum():
                return self.of(value.value, depth)
            case BaseException():
                return {"error": type(value).__name__, "message": self._text(str(value))}
            case BaseModel():
                return self._object(value.model_dump(), depth)
            case Mapping():
                return self._object(value, depth)
            case Set():
                return sorted(self._list(value, depth), key=canonical)
            case list() | tuple():
                as_dict = getattr(value, "_asdict", None)
                return self._object(as_dict(), depth) if as_dict else self._list(value, depth)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                names = (field.name for field in dataclasses.fields(value))
                return self._object({name: getattr(value, name) for name in names}, depth)
            case _:
                self._left -= len(UNSERIALIZABLE)
                return UNSERIALIZABLE

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, member in value.items():
            if self._left < 0:
                break
            out[self._text(_key(key))] = self.of(member, depth)
        self._left -= 2
        return out

    def _list(self, value: Iterable[Any], depth: int) -> list[Any]:
        out: list[Any] = []
        for member in value:
            if self._left < 0:
                break
            out.append(self.of(member, depth))
        self._left -= 2
        return out


def _scalar_text(value: Any) -> str | None:
    """The text of a value that JSON writes as a string, None for any other."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return f"PT{value.total_seconds():g}S"
        case UUID() | Decimal() | PurePath():
            return str(value)
        case bytes() | bytearray():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return UNSERIALIZABLE
        case _:
            return None


def _key(key: Any) -> str:
    match key:
        case str():
            return str.__str__(key)
        case None:
            return "null"
        case bool():
            return "true" if key else "false"
        case Enum():
            return _key(key.value)
        case int() | float():
            return repr(key)
        case _:
            text = _scalar_text(key)
            if text is None:
                raise TypeError(f"{type(key).__name__} is no key")
            return text
