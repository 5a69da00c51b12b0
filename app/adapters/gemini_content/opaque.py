"""Gather what the Gemini API wants back of an answer: thought signatures, and parts of its own tools."""

from __future__ import annotations

from typing import Any, Final

from app.core import json_text
from app.core.chunks import OpaqueBlocks
from app.core.opaque import MAX_BYTES, OpaqueBlock

SIGNATURE: Final = "thoughtSignature"
_LARGE: Final = frozenset({"inlineData", "fileData"})
"""Parts that are output, which nobody wants back."""


class OpaqueGatherer:
    """A signature stays with the part that it signs: some text, a call, or nothing but the signature."""

    def __init__(self) -> None:
        self._blocks: list[OpaqueBlock] = []
        self._size = 0
        self.length = 0
        """Code points of text so far; its reader adds to it."""
        self.calls = 0
        """Tool calls so far; likewise."""

    def call(self, part: dict[str, Any]) -> None:
        """A call comes, which is not counted yet."""
        if signature := _signature(part):
            self._add(OpaqueBlock(_signed(signature), self.length, calls=self.calls, of_call=True))

    def text(self, part: dict[str, Any], text: str) -> None:
        """A text comes, which is not counted yet and may be empty."""
        if signature := _signature(part):
            bare = {} if text else {"text": ""}
            self._add(OpaqueBlock(_signed(signature, **bare), self.length, len(text), self.calls))

    def other(self, part: dict[str, Any]) -> None:
        """A thought, or a part that is neither text nor call: what the API's own tools did."""
        kept = bool(_signature(part)) if part.get("thought") is True else not part.keys() & _LARGE
        if kept and part:
            self._add(OpaqueBlock(json_text.dumps(part).decode(), self.length, calls=self.calls))

    def gathered(self) -> OpaqueBlocks | None:
        """All of it, once the answer is complete; None where there is nothing, or too much."""
        if not self._blocks or self._size > MAX_BYTES:
            return None
        return OpaqueBlocks(tuple(self._blocks))

    def _add(self, block: OpaqueBlock) -> None:
        self._size += len(block.json)
        self._blocks.append(block)


def _signature(part: dict[str, Any]) -> str:
    signature = part.get(SIGNATURE)
    return signature if type(signature) is str else ""


def _signed(signature: str, **members: str) -> str:
    return json_text.dumps({**members, SIGNATURE: signature}).decode()
