"""Two fitted schemas that both must hold, as one; for an engine that cannot combine them itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
Fitted = Schema | None
"""A schema, {} if it admits everything, or None if it admits nothing."""

BRANCHES = ("anyOf", "oneOf")
LISTS = ("const", "enum")


BOUNDS = (("minItems", "maxItems"), ("minLength", "maxLength"), ("minimum", "maximum"))
_OF_TYPE = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "integer": ("minimum", "maximum"),
}
_MAX_DEPTH = 8
"""Two schemas that contain themselves could be merged for ever."""


def merge(first: Fitted, second: Fitted, definitions: Mapping[str, Schema], depth: int = 0) -> Fitted:
    """What both admit, or a little more where one schema cannot say it; `first` wins a contradiction.

    `definitions` has the targets of references, by pointer; one that leads nowhere counts as {}.
    """
    if first is None or second is None:
        return None
    if not first or not second or first == second or depth > _MAX_DEPTH:
        return first or second
    if "$ref" in first or "$ref" in second:
        return merge(_target(first, definitions), _target(second, definitions), definitions, depth + 1)
    for one, other in ((first, second), (second, first)):
        if any(keyword in one for keyword in LISTS):
            return one
        if any(keyword in one for keyword in BRANCHES):
            return other
    return _merge_plain(first, second, definitions, depth)


def _target(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    passed: set[str] = set()
    while "$ref" in schema:
        if schema["$ref"] in passed:
            return {}
        passed.add(schema["$ref"])
        schema = definitions.get(schema["$ref"], {})
    return schema


def _merge_plain(first: Schema, second: Schema, definitions: Mapping[str, Schema], depth: int) -> Fitted:
    merged = {**second, **first}
    if "type" in first and "type" in second:
        types = [name for name in _names(first["type"]) if name in _names(second["type"])]
        if not types:
            return None
        merged["type"] = types[0] if len(types) == 1 else types
    if "properties" in first and "properties" in second:
        properties = dict(first["properties"])
        for name, schema in second["properties"].items():
            both = merge(properties.get(name, {}), schema, definitions, depth + 1)
            properties[name] = properties[name] if both is None else both
        merged["properties"] = properties
    if "required" in first and "required" in second:
        merged["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    if first.get("additionalProperties") != second.get("additionalProperties"):
        merged.pop("additionalProperties", None)
    return _tidied(merged)


def _tidied(schema: Schema) -> Schema:
    """Without keywords of other types, bounds that exclude each other, and items beside a tuple."""
    types = _names(schema.get("type", []))
    dropped = {
        keyword for kind, keywords in _OF_TYPE.items() if types and kind not in types for keyword in keywords
    }
    if "prefixItems" in schema:
        dropped |= {"items", "minItems", "maxItems"}
    for least, most in BOUNDS:
        if least in schema and most in schema and schema[least] > schema[most]:
            dropped |= {least, most}
    return {keyword: value for keyword, value in schema.items() if keyword not in dropped}


def _names(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types
