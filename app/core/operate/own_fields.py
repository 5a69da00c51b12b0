"""The schemas of the fields that this service adds to an answer: reasoning, and tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.core.json_text import canonical
from app.core.prompt import ToolSchema

REASON: Final = ("reason",)
ACTIONS: Final = ("action_required", "action_requests", "action_responses")

MAX_TOOLS_SPELT_OUT: Final = 16 * 1024
"""Bytes of tool schemas up to which the arguments of each tool are part of the request schema."""

REASON_ASKED: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "The reasoning that leads to the answer.",
    "properties": {
        "title": {"type": "string"},
        "content": {"type": "string"},
        "confidence_score": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "How sure the answer is, from 0 to 1.",
        },
    },
    "required": ["title", "content", "confidence_score"],
    "additionalProperties": False,
}

REASON_ACCEPTED: Final[Mapping[str, Any]] = {
    "type": ["object", "null"],
    "properties": {
        "title": {"type": ["string", "null"]},
        "content": {"type": ["string", "null"]},
        "confidence_score": {"type": ["number", "null"]},
    },
}

ACTIONS_ACCEPTED: Final[Mapping[str, Any]] = {
    "action_required": {"type": ["boolean", "null"]},
    "action_requests": {
        "type": ["array", "null"],
        "items": {
            "type": "object",
            "properties": {"function": {"type": "string"}, "arguments": {}},
            "required": ["function"],
        },
    },
}

OWN_ACCEPTED: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"reason": REASON_ACCEPTED, **ACTIONS_ACCEPTED},
}

ACTION_RESPONSES: Final[Mapping[str, Any]] = {
    "type": ["array", "null"],
    "items": {
        "type": "object",
        "properties": {
            "function": {"type": "string"},
            "arguments": {},
            "output": {},
            "error": {"type": ["string", "null"]},
            "call_id": {"type": "string"},
            "status": {"type": "string"},
        },
        "required": ["function", "arguments", "output", "error", "call_id", "status"],
    },
}


def actions_asked(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """The properties by which an answer asks for calls of these tools."""
    return {
        "action_required": {
            "type": "boolean",
            "description": "Whether a tool has to be called for the answer.",
        },
        "action_requests": {
            "type": "array",
            "description": "The tool calls to make; empty when none is needed.",
            "items": _request_item(tools),
        },
    }


def _request_item(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    spelt_out = [_call_of({"const": tool.name}, dict(tool.parameters)) for tool in tools]
    text = canonical(spelt_out)
    # A reference inside a tool's schema would point into the wrong root.
    if len(text) <= MAX_TOOLS_SPELT_OUT and b'"$ref"' not in text:
        return spelt_out[0] if len(spelt_out) == 1 else {"anyOf": spelt_out}
    return _call_of({"enum": [tool.name for tool in tools]}, {"type": "object"})


def _call_of(function: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"function": {"type": "string", **function}, "arguments": arguments},
        "required": ["function", "arguments"],
        "additionalProperties": False,
    }
