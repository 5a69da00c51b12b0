"""How a value grows: a list of changes that only ever adds to it."""

from __future__ import annotations

from typing import Any, Final

import orjson

from app.core.json_text import dumps

ADD: Final = "add"
"""A member or an item comes at the path; "" is the whole value."""
APPEND: Final = "append"
"""The text at the path goes on."""


class Changes:
    """Changes in order, texts that go on in several pieces as one change."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._op = ADD
        self._path = ""
        self._pieces: list[str] | None = None
        """Of the text that grows at the end of the list."""

    def add(self, path: str, value: Any) -> None:
        """A value that is whole, or an object or array that is still empty."""
        self._close()
        self._write(ADD, path, dumps(value).decode())

    def begin(self, path: str) -> None:
        """A text that is still empty."""
        self._close()
        self._op, self._path, self._pieces = ADD, path, []

    def append(self, path: str, piece: str) -> None:
        """The text at the path, the last one that began, goes on."""
        if self._pieces is None or self._path != path:
            self._close()
            self._op, self._path, self._pieces = APPEND, path, []
        self._pieces.append(piece)

    def take(self) -> str | None:
        """All of them as a JSON array, and none is left; None where there are none."""
        self._close()
        if not self._done:
            return None
        taken, self._done = self._done, []
        return f"[{','.join(taken)}]"

    def _close(self) -> None:
        if self._pieces is not None:
            self._write(self._op, self._path, orjson.dumps("".join(self._pieces)).decode())
            self._pieces = None

    def _write(self, op: str, path: str, value: str) -> None:
        self._done.append(f'{{"op":"{op}","path":{orjson.dumps(path).decode()},"value":{value}}}')
