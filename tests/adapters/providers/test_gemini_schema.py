"""JSON Schemas in the dialect of the Gemini API."""

from __future__ import annotations

from typing import Any

import pytest

from app.adapters.gemini_content.schema import project

TEXT = {"type": "string"}
LOOP = {"type": "object", "properties": {"next": {"$ref": "#"}}}
WIDE = {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/a"} for n in range(100)}}
TALL: dict[str, Any] = {
    "$defs": {
        "a": {"type": "object", "properties": {f"q{n}": {"$ref": "#/$defs/b"} for n in range(100)}},
        "b": {"type": "object", "properties": {"r": TEXT}},
    }
}

DOUBLING: dict[str, Any] = {
    "$ref": "#/$defs/0",
    "$defs": {
        **{str(n): {"properties": {side: {"$ref": f"#/$defs/{n + 1}"} for side in "ab"}} for n in range(24)},
        "24": TEXT,
    },
}


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        (TEXT, {"type": "STRING"}),
        ({**TEXT, "format": "date-time", "pattern": "^a"}, {"type": "STRING", "format": "date-time"}),
        ({**TEXT, "format": "email", "title": "T"}, {"title": "T", "type": "STRING"}),
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
        ({"type": "null"}, {"type": "NULL"}),
        ({"type": ["integer", "string"]}, {"anyOf": [{"type": "INTEGER"}, {"type": "STRING"}]}),
        ({"type": "integer", "minimum": 1, "exclusiveMaximum": 5}, {"type": "INTEGER", "minimum": 1}),
        (
            {"enum": ["a", "b", None]},
            {"type": "STRING", "format": "enum", "enum": ["a", "b"], "nullable": True},
        ),
        ({**TEXT, "enum": ["a", ""]}, {"type": "STRING"}),
        ({"enum": [1, 2]}, {"type": "INTEGER"}),
        ({"const": "a"}, {"type": "STRING", "format": "enum", "enum": ["a"]}),
        ({"const": True}, {"type": "BOOLEAN"}),
        ({"type": ["string", "null"], "const": "a"}, {"type": "STRING", "format": "enum", "enum": ["a"]}),
        (
            {"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True},
            {"type": "ARRAY", "items": {"type": "STRING"}, "minItems": 1},
        ),
        (
            {
                "properties": {"b": TEXT, "a": {"type": "number"}},
                "required": ["a", "c"],
                "additionalProperties": False,
            },
            {
                "type": "OBJECT",
                "properties": {"b": {"type": "STRING"}, "a": {"type": "NUMBER"}},
                "propertyOrdering": ["b", "a"],
                "required": ["a"],
            },
        ),
        (
            {"anyOf": [TEXT, {"type": "null"}], "title": "T"},
            {"title": "T", "type": "STRING", "nullable": True},
        ),
        (
            {"oneOf": [TEXT, {"type": "boolean"}, {"type": "null"}], "description": "D"},
            {"anyOf": [{"type": "STRING", "nullable": True}, {"type": "BOOLEAN", "nullable": True}]},
        ),
        (
            {"type": "string", "anyOf": [{"enum": ["a"]}, {"minLength": 2}]},
            {"anyOf": [{"type": "STRING", "format": "enum", "enum": ["a"]}, {"type": "STRING"}]},
        ),
        (
            {"$ref": "#/$defs/a~1b", "description": "D", "$defs": {"a/b": {**TEXT, "description": "E"}}},
            {"description": "D", "type": "STRING"},
        ),
        (
            {"$ref": "#/$defs/u", "title": "T", "$defs": {"u": {"anyOf": [TEXT, {"type": "integer"}]}}},
            {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]},
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": TEXT}, "required": ["a"]},
                    {"properties": {"b": TEXT}, "required": ["b"]},
                ],
                "type": "object",
            },
            {
                "type": "OBJECT",
                "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}},
                "propertyOrdering": ["a", "b"],
                "required": ["a", "b"],
            },
        ),
    ],
)
def test_what_the_dialect_can_say(schema: dict[str, Any], made: dict[str, Any]) -> None:
    assert project(schema) == made


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"description": "anything"},
        {"type": "object"},
        {"type": "object", "additionalProperties": TEXT},
        {"type": "array"},
        {"type": "array", "items": True},
        {"type": "array", "prefixItems": [TEXT]},
        {"type": "object", "properties": {"x": {}}},
        {"anyOf": [TEXT, True]},
        {"$ref": "#/$defs/none"},
        {"$ref": "https://elsewhere.test/s"},
        {"$ref": "#"},
        {"allOf": [TEXT, {"type": "integer"}]},
        LOOP,
        {**WIDE, **TALL},
        DOUBLING,
    ],
)
def test_what_it_cannot_say_is_not_said_at_all(schema: dict[str, Any]) -> None:
    assert project(schema) is None
