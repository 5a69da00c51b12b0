"""Join the fragments of tool calls and read their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.chunks import ToolCallDelta
from app.core.json_text import NotJson, read_mended, storable

MAX_DEPTH: Final = 100
"""Deepest nesting of arguments; deeper ones cannot be relied on to be stored or sent again."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One complete call that the model asks for."""

    index: int
    """Which of the answer's calls it is, from 0, however the provider numbers them."""
    id: str
    """The provider's id, or one made here where it sends none."""
    name: str
    arguments: dict[str, Any]
    raw: str
    """The arguments as the model wrote them; may be empty."""
    replaced: int = 0
    """How many NULs and halves of characters in the arguments became U+FFFD."""


@dataclass(frozen=True, slots=True)
class BadCall:
    """A call that cannot be run as the model wrote it."""

    index: int
    name: str
    raw: str
    why: str

    def __str__(self) -> str:
        return f"tool call {self.index} ({self.name or 'without a name'}): {self.why}"


@dataclass(slots=True)
class _Parts:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class ToolCallParts:
    """The calls of one answer while they arrive."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[int, _Parts] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, delta: ToolCallDelta) -> None:
        """Take one fragment; a name or id that is repeated, or follows as "", changes nothing."""
        parts = self._parts.get(delta.index)
        if parts is None:
            parts = self._parts[delta.index] = _Parts()
        parts.id = parts.id or storable(delta.id or "")
        parts.name = parts.name or storable(delta.name or "")
        if delta.arguments:
            parts.arguments.append(delta.arguments)

    @property
    def length(self) -> int:
        """Code points of all names and arguments."""
        return sum(len(parts.name) + sum(map(len, parts.arguments)) for parts in self._parts.values())

    def joined(self, new_id: Callable[[], str]) -> tuple[list[ToolCall], BadCall | None]:
        """The calls by index, up to the first that cannot be run, and what is wrong with that one.

        `new_id` is asked for each call that came without an id.
        """
        calls: list[ToolCall] = []
        for index, parts in sorted(self._parts.items()):
            raw = "".join(parts.arguments)
            if not parts.name:
                return calls, BadCall(index, parts.name, raw, "no function is named")
            try:
                arguments, replaced = read_arguments(raw)
            except ValueError as error:
                return calls, BadCall(index, parts.name, raw, str(error))
            calls.append(ToolCall(len(calls), parts.id or new_id(), parts.name, arguments, raw, replaced))
        return calls, None


def read_arguments(raw: str) -> tuple[dict[str, Any], int]:
    """Arguments as an object, and how many characters were replaced; none at all and `null` mean `{}`.

    What cannot be stored, NULs and halves of characters, is U+FFFD in them. An object with a key twice is
    refused: a check and the tool could each read another copy. Raises ValueError saying what is wrong.
    """
    if not raw.strip():
        return {}, 0
    try:
        read = read_mended(raw, max_depth=MAX_DEPTH)
    except NotJson as error:
        raise ValueError(f"the arguments cannot be read: {error}") from None
    if read.value is None:
        return {}, 0
    if not isinstance(read.value, dict):
        raise ValueError("the arguments are not a JSON object")
    return read.value, read.replaced
