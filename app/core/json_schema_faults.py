"""What is wrong with a schema, in words that say what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from app.core.json_schema_drafts import DRAFT_04

_TYPES: Final = "string, integer, number, boolean, object, array, null"
_DRAFT_04: Final = f'; if this is meant as draft-04, say so: `"$schema": "{DRAFT_04}"`'
_PATTERN: Final = "is no pattern that is matched in linear time: no look-around, no back-references"


def no_object(value: Any) -> LiteralString:
    """What is wrong with a schema that is no object."""
    if value is True:
        return "a schema that accepts everything is not taken here; write an object"
    if value is False:
        return "a schema that accepts nothing is not taken here; write an object"
    return "a JSON Schema is an object"


def told(path: Sequence[str | int], value: Any, message: str) -> str:
    """The fault of the value that stands at a path of a schema; `message` is the compiler's."""
    word = path[-1] if path else ""
    in_patterns = len(path) > 1 and path[-2] == "patternProperties"
    match word, value:
        case ("exclusiveMinimum" | "exclusiveMaximum", bool()):
            bound = str(word).replace("exclusiveM", "m")
            return f"`{word}` is a number, in place of `{bound}`{_DRAFT_04}"
        case ("items", list()):
            return "`items` is one schema; a list of them is called `prefixItems` since 2020-12"
        case ("required", bool()):
            return "`required` is a list of names, beside `properties`"
        case ("type", _) if "anyOf" in message:
            return f"{_short(value)} is no type: one of {_TYPES}, or a list of them"
        case _ if "regex" in message and (word == "pattern" or in_patterns):
            return f"{_short(word if in_patterns else value)} {_PATTERN}"
    return message


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
