"""Read the JSON of an answer that strict and fast parsers refuse or round, and write it again."""

from __future__ import annotations

import json
from typing import Any

from app.core import json_text


def lenient_loads(raw: bytes) -> Any:
    """The value, exact, also with lone surrogates, NaN, bare control characters and bad UTF-8.

    Raises ValueError.
    """
    try:
        return json.loads(raw.decode("utf-8", "replace"), strict=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def lenient_dumps(value: Any) -> str:
    """The JSON text of such a value: half a character is written as an escape, what is no number as null."""
    try:
        return json_text.dumps(value).decode()
    except json_text.NotJson:
        pass
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda word: None))
