"""The JSON Schema of what a partial view of a log shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_UUID: Final = {"type": "string", "format": "uuid"}
_SHARED: Final[Mapping[str, Any]] = {
    "seq": {"type": "integer", "description": "The event up to which it tells everything."},
    "run_id": _UUID,
}
_STREAM: Final[Mapping[str, Any]] = {
    "stream_id": _UUID,
    "attempt": {"type": "integer"},
    "fallback_index": {"type": "integer"},
}


def _frame(type: str, words: str, members: Mapping[str, Any]) -> dict[str, Any]:
    properties = {"type": {"const": type}, **_SHARED, **members}
    return {
        "type": "object",
        "title": type.title(),
        "description": words,
        "properties": properties,
        "required": list(properties),
    }


_CHANGE: Final = {
    "type": "object",
    "properties": {
        "op": {
            "enum": ["add", "append"],
            "description": "`add` is that of a JSON Patch (RFC 6902); `append` lengthens a text.",
        },
        "path": {"type": "string", "description": 'RFC 6901 pointer; "" is the whole value.'},
        "value": {},
    },
    "required": ["op", "path", "value"],
}

PARTIAL_FRAME: Final[dict[str, Any]] = {
    "description": "One step of a value that is being written.",
    "oneOf": [
        _frame(
            "partial",
            "The value grows; nothing that was shown changes.",
            {**_STREAM, "changes": {"type": "array", "items": _CHANGE}},
        ),
        _frame(
            "reset",
            "What was shown is void, because a model was asked anew; the value is now this one.",
            {**_STREAM, "reason": {"enum": ["retry", "fallback", "repair"]}, "value": {}},
        ),
        _frame(
            "final",
            "The run has ended, with this result.",
            {
                "status": {"enum": ["completed", "failed", "cancelled", "expired"]},
                "error": {"type": ["object", "null"]},
                "continues": {
                    "type": "boolean",
                    "description": "Whether the result only adds to what was shown.",
                },
                "value": {},
            },
        ),
    ],
    "examples": [
        {
            "seq": 12,
            "type": "partial",
            "run_id": "019a0000-0000-7000-8000-000000000003",
            "stream_id": "019a0000-0000-7abc-9def-0123456789ab",
            "attempt": 1,
            "fallback_index": 0,
            "changes": [{"op": "add", "path": "/title", "value": "The t"}],
        }
    ],
}
