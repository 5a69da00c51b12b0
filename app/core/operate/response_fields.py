"""The dictionary form of a response format: fields with an example or the name of a type each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_TYPES: Final[Mapping[str, str]] = {
    "string": "string",
    "str": "string",
    "integer": "integer",
    "int": "integer",
    "number": "number",
    "float": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "array": "array",
    "list": "array",
    "object": "object",
    "dict": "object",
}
"""Texts that name a type; any other text is an example."""


def schema_of_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The schema that shows a model what each field is like; answers are not held against it."""
    return {
        "type": "object",
        "properties": {name: _like(example) for name, example in fields.items()},
        "required": list(fields),
    }


def _like(example: Any) -> dict[str, Any]:
    match example:
        case None:
            return {}
        case str() if example in _TYPES:
            return {"type": _TYPES[example]}
        case bool():
            return {"type": "boolean", "examples": [example]}
        case int():
            return {"type": "integer", "examples": [example]}
        case float():
            return {"type": "number", "examples": [example]}
        case str():
            return {"type": "string", "examples": [example]}
        case list():
            return {"type": "array", "items": _like(example[0])} if example else {"type": "array"}
        case _:
            return schema_of_fields(example) if example else {"type": "object"}
