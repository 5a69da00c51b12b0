"""Gather the blocks of a Messages answer that the server wants back as they came."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from app.adapters.lenient_json import lenient_dumps
from app.core import json_text
from app.core.chunks import OpaqueBlocks
from app.core.opaque import MAX_BYTES, OpaqueBlock

_BLOCK: Final = b'"content_block"'
_APPENDED: Final = {
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}
"""Pieces of text, and the member of the block that they are put after."""
_DECODER: Final = json.JSONDecoder()


@dataclass(slots=True)
class _Open:
    """A block that is being written."""

    start: dict[str, Any]
    raw: str
    """The start as the server wrote it; "" once a piece has come to it."""
    at: int
    pieces: dict[str, list[str]] = field(default_factory=dict)
    """Text that comes after what the member has."""
    citations: list[Any] = field(default_factory=list)
    input: list[str] = field(default_factory=list)


class OpaqueGatherer:
    """Everything but plain text and calls of ours: signed thoughts, tools of the server's, cited text.

    A text costs its length being added up; the rest costs by the block and the piece of a block.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._text_at: dict[int, int] = {}
        self._blocks: list[OpaqueBlock] = []
        self._size = 0
        self._whole = True
        """Whether all of it is understood and kept; a part of it would be refused."""
        self.length = 0
        """Code points of text so far; its reader adds to it."""
        self.calls = 0
        """Tool calls so far; likewise."""

    def text(self, index: int, start: dict[str, Any]) -> None:
        """A text block begins."""
        self._text_at[index] = self.length
        if type(citations := start.get("citations")) is list and citations:
            self._cited(index).citations += citations

    def begin(self, index: int, start: dict[str, Any], event: bytes) -> None:
        """Another block begins; `event` says so."""
        if self._whole:
            self._open[index] = _Open(start, _raw_block(event), self.length)

    def piece(self, index: int, delta: dict[str, Any]) -> None:
        """More of a block; pieces of plain text and of calls are none of this."""
        kind = delta.get("type")
        if kind == "citations_delta":
            self._cited(index).citations.append(delta.get("citation"))
            return
        block = self._open.get(index)
        if block is None:
            return
        if kind == "input_json_delta":
            if type(piece := delta.get("partial_json")) is str and piece:
                block.input.append(piece)
                block.raw = ""
        elif (member := _APPENDED.get(str(kind))) is not None and type(delta.get(member)) is str:
            block.pieces.setdefault(member, []).append(delta[member])
            block.raw = ""
        else:
            self._whole = False

    def end(self, index: int) -> None:
        """A block is complete."""
        began = self._text_at.pop(index, None)
        block = self._open.pop(index, None)
        if block is None:
            return
        span = 0 if began is None else self.length - began
        if began is None and block.start.get("type") == "thinking" and not self._signed(block):
            return  # a thought that nobody signed is refused
        text = self._json(block)
        if not _is_json(text):
            self._whole = False
            return
        self._size += len(text)
        self._blocks.append(OpaqueBlock(text, block.at, span, self.calls))
        if self._size > MAX_BYTES:
            self._whole = False
            self._blocks.clear()

    def gathered(self) -> OpaqueBlocks | None:
        """All of it, once the answer is complete; None where there is nothing, or too much."""
        for index in list(self._open):
            self.end(index)
        return OpaqueBlocks(tuple(self._blocks)) if self._blocks and self._whole else None

    def _cited(self, index: int) -> _Open:
        if index not in self._open:
            self._open[index] = _Open({"type": "text"}, "", self._text_at.get(index, self.length))
        return self._open[index]

    @staticmethod
    def _signed(block: _Open) -> bool:
        return bool(block.start.get("signature") or "".join(block.pieces.get("signature", ())))

    @staticmethod
    def _json(block: _Open) -> str:
        """The block as text: JSON, if what came for it is."""
        if block.raw:
            return block.raw
        members = {name: lenient_dumps(value) for name, value in block.start.items()}
        for name, pieces in block.pieces.items():
            before = block.start.get(name)
            members[name] = lenient_dumps((before if type(before) is str else "") + "".join(pieces))
        if block.citations:
            members["citations"] = lenient_dumps(block.citations)
        if block.input:
            members["input"] = "".join(block.input)
        return (
            "{" + ",".join(f"{lenient_dumps(name)}:{_whole(value)}" for name, value in members.items()) + "}"
        )


def _raw_block(event: bytes) -> str:
    """The block that an event begins, as it stands there; "" where it cannot be told."""
    text = event.decode("utf-8", "replace")
    place = text.find(_BLOCK.decode())
    start = text.find("{", place)
    if place < 0 or start < 0:
        return ""
    try:
        _, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return ""
    return text[start:end]


def _is_json(text: str) -> bool:
    """Whether the server can read it again: what is sent to it is made of texts like this one."""
    try:
        json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return False
    return True


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _whole(text: str) -> str:
    """The text with the two halves of a character put together that came in two pieces."""
    if json_text.is_storable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
