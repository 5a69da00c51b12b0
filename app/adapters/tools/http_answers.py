"""Read what a tool answered over HTTP: its output, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from app.core import json_text
from app.core.masking import Mask
from app.ports.tool import ToolFailure

MAX_BYTES: Final = 1024 * 1024
"""Largest body that is sent, and that is read; as much as is stored of one output."""
MAX_WORDS: Final = 500
"""Code points of a tool's own words in the message of an error."""
EXCERPT: Final = 200
"""Code points of a body that could not be read."""

BLOCKED_ADDRESS: Final = "BLOCKED_ADDRESS"
HTTP_ERROR: Final = "HTTP_ERROR"
HTTP_TOO_LARGE: Final = "HTTP_TOO_LARGE"
INVALID_RESPONSE: Final = "INVALID_RESPONSE"

_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_OTHERS: Final = {
    **dict.fromkeys(("iso-8859-1", "latin1", "latin-1"), "latin-1"),
    **dict.fromkeys(("windows-1252", "cp1252"), "cp1252"),
    "utf-16": "utf-16",
}
"""Charsets that are taken beside UTF-8; any other is read as UTF-8."""

_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses that say that the same may work later."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answered."""

    status: int
    content_type: str
    body: bytes
    """All of it; of an answer that is no success it may be the beginning."""


def output_in(answer: Answer, *, hidden: Collection[str] = (), never: Collection[str] = ()) -> Any:
    """The output: the body's JSON, or None when it is empty. Raises `ToolFailure`.

    A body is read as JSON whatever its media type says. What cannot be stored of a text becomes U+FFFD, for a
    tool that has taken effect is not failed for it. `hidden` texts are told in no failure, and
    `never` ones, which are secrets for sure, in no output either.
    """
    status = answer.status
    if 300 <= status < 400:
        raise ToolFailure(BLOCKED_ADDRESS, f"HTTP {status}: redirects are not followed", retryable=False)
    if not 200 <= status < 300:
        said = _shown(_said(answer), MAX_WORDS, hidden)
        words = f"HTTP {status}: {said}" if said else f"HTTP {status}"
        raise ToolFailure(HTTP_ERROR, words, retryable=status in _PASSING)
    if status == HTTPStatus.NO_CONTENT or not answer.body:
        return None
    try:
        value = _value(answer)
        return Mask(never).whole(value) if never else value
    except json_text.NotJson as error:
        begins = _shown(_text(answer), EXCERPT, hidden)
        words = f"HTTP {status}, but the body is no JSON ({error}): {begins}"
        raise ToolFailure(INVALID_RESPONSE, words, retryable=False) from None


def too_large() -> ToolFailure:
    """For a body of more than `MAX_BYTES`."""
    words = f"the answer has more than {MAX_BYTES} bytes; whether the tool took effect is unknown"
    return ToolFailure(HTTP_TOO_LARGE, words, retryable=False)


def _value(answer: Answer) -> Any:
    return json_text.read_mended(_text(answer), unique_keys=False).value


def _said(answer: Answer) -> str:
    """The tool's own words: the text of `error` or `message`, or of the one inside of the other."""
    try:
        value = _value(answer)
    except json_text.NotJson:
        return ""
    while isinstance(value, dict):
        value = value.get("error") or value.get("message")
    return value if isinstance(value, str) else ""


def _text(answer: Answer) -> str:
    named = _CHARSET.search(answer.content_type)
    charset = _OTHERS.get(named[1].lower(), "utf-8-sig") if named else "utf-8-sig"
    return answer.body.decode(charset, errors="replace")


def _shown(text: str, most: int, hidden: Collection[str]) -> str:
    """At most `most` code points of it, on one line, printable and without the `hidden` texts."""
    begins = text[: 4 * most]
    shown = "".join(c if c.isprintable() else " " for c in (Mask(hidden).all(begins) if hidden else begins))
    kept = " ".join(shown.split())
    return kept if len(kept) <= most else kept[: most - 1] + "…"
