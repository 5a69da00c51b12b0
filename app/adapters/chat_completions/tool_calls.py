"""Tell which fragment belongs to which tool call, where servers do not say so properly.

A well-behaved server numbers its calls with `index` and names each once. Others leave out the index or the
id, repeat the name in every fragment, send a new id with every fragment, or give every call the index 0.
The rule that serves them all:

1. The *candidate* is the call that the fragment points at: by its `index`; without one by its `id`; without
   both, the latest call that stood at the same position in the list of its event; failing that, the last
   call of all if the fragment has no name. Without a candidate the fragment opens a call.
2. A fragment continues its candidate unless it *opens another call*: it has a name, its id is not the
   candidate's, and either the name is a different one, or the candidate's arguments are already a complete
   object and the fragment brings a new id or further arguments.

Calls are numbered from 0 in the order in which they were opened.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from app.core import json_text
from app.core.chunks import ToolCallDelta

_STRUCTURE: Final = re.compile(r'\\.|[\\"{}\[\]]', re.DOTALL)


class Extent:
    """Where a JSON object ends that comes in pieces, found without reading any piece twice."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._cut_escape = ""
        self.complete = False
        """Whether an object was opened and closed again."""

    def add(self, piece: str) -> None:
        """Take the next piece of the text."""
        cut, self._cut_escape = self._cut_escape, ""
        for found in _STRUCTURE.finditer(cut + piece):
            mark = found.group()
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                self._cut_escape = mark
            elif self._in_string or len(mark) == 2:
                continue
            elif mark in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                self.complete = self.complete or self._depth == 0


@dataclass(slots=True)
class _Call:
    index: int
    name: str = ""
    id: str = ""
    extent: Extent = field(default_factory=Extent)


class ToolCalls:
    """The tool calls of one answer."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._by_position: dict[int, _Call] = {}

    def deltas(self, entries: Any) -> list[ToolCallDelta]:
        """The fragments in the `tool_calls` of one event, whatever stands there."""
        if isinstance(entries, dict):
            entries = [entries]
        if not isinstance(entries, list):
            return []
        return [self._delta(at, entry) for at, entry in enumerate(entries) if isinstance(entry, dict)]

    def whole(self, name: str | None, arguments: str) -> ToolCallDelta:
        """A call that came in one piece and belongs to no other."""
        call = self._open()
        return ToolCallDelta(call.index, None, name, arguments)

    def _delta(self, position: int, entry: dict[str, Any]) -> ToolCallDelta:
        function = entry.get("function")
        said = function if isinstance(function, dict) else entry
        name, id = _text(said.get("name")), _text(entry.get("id"))
        arguments = _arguments(said.get("arguments"))
        index = _index(entry.get("index"))

        call = self._candidate(index, id, name, position)
        if call is None or _opens_another(call, name, id, arguments):
            call = self._open()
        if index is not None:
            self._by_index[index] = call
        if id:
            self._by_id[id] = call
        self._by_position[position] = call
        call.name = call.name or name
        call.id = call.id or id
        call.extent.add(arguments)
        return ToolCallDelta(call.index, id or None, name or None, arguments)

    def _candidate(self, index: int | None, id: str, name: str, position: int) -> _Call | None:
        if index is not None:
            # An unknown index is a new call, also with a known id: some use the function's name as the id.
            return self._by_index.get(index)
        known = self._by_id.get(id) if id else None
        call = known or self._by_position.get(position)
        if call is None and not name and self._calls:
            call = self._calls[-1]
        return call

    def _open(self) -> _Call:
        call = _Call(len(self._calls))
        self._calls.append(call)
        return call


def _opens_another(call: _Call, name: str, id: str, arguments: str) -> bool:
    if not name or (id and id == call.id):
        return False
    if call.name and name != call.name:
        return True
    return call.extent.complete and bool((id and call.id) or arguments.strip())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _arguments(value: Any) -> str:
    """The arguments' JSON text; a server may send the object itself, or null."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json_text.dumps(value).decode()
    except json_text.NotJson:
        return json.dumps(value)
