"""Take secrets out of what others say: as they are, encoded, and in pieces."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote

from app.core.json_text import NotJson, dumps

MASK: Final = "[redacted]"
PIECE: Final = 10
"""Characters of a secret in a row that are taken for a piece of it, where a text was cut."""


class Mask:
    """Hides some secrets; made once for a text or several."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        self._whole = sorted(forms, key=len, reverse=True)

    @cached_property
    def _pieces(self) -> set[str]:
        forms = self._whole
        return {form[at : at + PIECE] for form in forms for at in range(len(form) - PIECE + 1)}

    def whole(self, value: Any) -> Any:
        """A JSON value with the secrets hidden that stand in its texts as a whole."""
        return _each_text(value, self._without_whole) if self._may_be_in(value) else value

    def all(self, value: Any) -> Any:
        """A JSON value with the secrets hidden in its texts, and what seems to be a piece of one."""
        return _each_text(value, self._without_any)

    def _may_be_in(self, value: Any) -> bool:
        # Looking through one text is a small part of looking through all of its texts.
        try:
            text = dumps(value).decode()
        except NotJson:  # Of half a surrogate, say, of which others make something that can be stored.
            return True
        return any(form in text for form in self._whole)

    def _without_whole(self, text: str) -> str:
        for form in self._whole:
            text = text.replace(form, MASK)
        return text

    def _without_any(self, text: str) -> str:
        text = self._without_whole(text)
        kept: list[str] = []
        begin = 0
        for start, end in self._stretches(text):
            kept += (text[begin:start], MASK)
            begin = end
        return "".join((*kept, text[begin:])) if kept else text

    def _stretches(self, text: str) -> Iterator[tuple[int, int]]:
        """Where pieces stand, those that overlap or touch as one."""
        start = end = -1
        for at in range(len(text) - PIECE + 1):
            if text[at : at + PIECE] in self._pieces:
                if at > end:
                    if end > 0:
                        yield start, end
                    start = at
                end = at + PIECE
        if end > 0:
            yield start, end


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_each_text(key, change): _each_text(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    return value


def _forms(secret: str) -> Iterator[str]:
    """How a secret may be written."""
    yield secret
    escaped = dumps(secret).decode()[1:-1]
    yield escaped
    yield escaped.replace("/", "\\/")
    yield quote(secret, safe="")
    yield quote(secret)
    raw = secret.encode("utf-8", "replace")
    for before in range(3):  # Base64 looks different with each number of bytes before it.
        text = base64.b64encode(bytes(before) + raw).rstrip(b"=").decode()
        firm = text[(0, 2, 3)[before] : len(text) - bool((before + len(raw)) % 3)]
        # A short stretch of letters says nothing of the secret, and may be any word.
        if len(firm) >= PIECE:
            yield firm
            yield firm.replace("+", "-").replace("/", "_")
