"""Gather the reasoning of a chat completions answer that its endpoint wants back."""

from __future__ import annotations

from typing import Any, Final, Literal

from app.adapters.lenient_json import lenient_dumps
from app.core.chunks import OpaqueBlocks
from app.core.opaque import MAX_BYTES, OpaqueBlock

_APPENDED: Final = ("text", "summary", "data")
"""Members of a detail that come in pieces."""


class KeptReasoning:
    """Reasoning as one member of the message; its details are put together from their pieces."""

    def __init__(self, member: Literal["reasoning_details", "reasoning_content"]) -> None:
        self._member = member
        self._texts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._pieces: list[dict[str, list[str]]] = []

    def text(self, text: str) -> None:
        """A piece of reasoning, as it is shown."""
        if self._member == "reasoning_content":
            self._texts.append(text)

    def details(self, details: Any) -> None:
        """Pieces of details: one follows on the last one that has its type and place."""
        if self._member != "reasoning_details" or type(details) is not list:
            return
        for detail in details:
            if type(detail) is dict:
                self._detail(detail)

    def gathered(self) -> OpaqueBlocks | None:
        """All of it; None where there is nothing, or too much."""
        value: Any = "".join(self._texts)
        if self._member == "reasoning_details":
            value = [
                detail | {name: "".join(texts) for name, texts in pieces.items()}
                for detail, pieces in zip(self._details, self._pieces, strict=True)
            ]
        text = f'{{"{self._member}":{lenient_dumps(value)}}}'
        if not value or len(text) > MAX_BYTES:
            return None
        return OpaqueBlocks((OpaqueBlock(text),))

    def _detail(self, detail: dict[str, Any]) -> None:
        last = self._details[-1] if self._details else None
        follows = last is not None and all(last.get(key) == detail.get(key) for key in ("type", "index"))
        if not follows or detail.get("type") == "reasoning.encrypted":
            self._details.append({})
            self._pieces.append({})
        whole, pieces = self._details[-1], self._pieces[-1]
        for name, value in detail.items():
            if name in _APPENDED and type(value) is str:
                pieces.setdefault(name, []).append(value)
            elif value or name not in whole:
                # A signature follows its text, and is empty or null until then.
                whole[name] = value
