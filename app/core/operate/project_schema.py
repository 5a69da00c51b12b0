"""Fitting a JSON Schema to an engine that constrains its output by less than all of JSON Schema.

The profile is that of llama.cpp, which turns a schema into a grammar. It refuses some keywords, ignores many,
forgets what stands beside some others, and a few keep it busy for minutes or make it crash. A fitted schema
holds what it can follow, so some answers in its form are not valid: check each against the full schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from app.core.operate.project_merge import BRANCHES, LISTS, Fitted, Schema, merge
from app.core.operate.project_pattern import fit_pattern

MAX_BYTES = 16_000
"""Of the fitted schema as JSON."""
MAX_DEPTH = 32
"""Of schemas inside schemas, and of values that are listed; what lies deeper is unconstrained."""
MAX_ENUM_VALUES = 200
"""In the whole schema; a list that would exceed them is left out."""
MAX_REPEATS = 500
"""Of items or characters, as a bound."""

_EXACT = 2**53
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_FORMATS = ("date", "time", "date-time", "uuid")
_MAX_MERGED_BRANCHES = 8
_CONTAINERS = ("$defs", "definitions")


def fit_schema(schema: Mapping[str, Any] | bool) -> Schema | None:
    """The part of `schema` that the engine can follow, or None if that is nothing or too much for it."""
    fitted = _Fitting(schema if isinstance(schema, Mapping) else {}).whole()
    if not fitted or len(json.dumps(fitted, separators=(",", ":")).encode()) > MAX_BYTES:
        return None
    return fitted


class _Fitting:
    """One walk over a schema: it keeps the count of listed values and the definitions that are in use."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._definitions: dict[str, Schema] = {}
        self._enum_values_left = MAX_ENUM_VALUES

    def whole(self) -> Schema:
        fitted = self._fit(self._root, 0) or {}
        self._cut_circles()
        if isinstance(fitted.get("$ref"), str) and not self._definitions[fitted["$ref"]]:
            return {}
        whole = dict(fitted)
        for pointer in self._used(fitted):
            _, container, name = pointer.split("/")
            whole[container] = {**whole.get(container, {}), name: self._definitions[pointer]}
        return whole

    def _used(self, fitted: Schema) -> list[str]:
        """The definitions that are still referred to, in a lasting order."""
        used: dict[str, None] = {}
        ahead = list(_references(fitted))
        while ahead:
            pointer = ahead.pop()
            if pointer not in used:
                used[pointer] = None
                ahead += _references(self._definitions[pointer])
        return sorted(used)

    def _fit(self, schema: object, depth: int) -> Fitted:
        if schema is False:
            return None
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return {}
        pointer = schema.get("$ref")
        if isinstance(pointer, str) and self._define(pointer, depth):
            return {"$ref": pointer}  # the engine looks at nothing beside it
        listed = self._listed(schema)
        if listed is not None:
            return listed
        fitted = self._plain(schema, depth)
        for part in self._each(schema.get("allOf"), depth):
            fitted = merge(fitted, part, self._definitions)
        for keyword in BRANCHES:
            fitted = self._branched(fitted, keyword, self._each(schema.get(keyword), depth))
        return fitted

    def _plain(self, schema: Mapping[str, Any], depth: int) -> Fitted:
        """The schema without its combinations of others."""
        types = _types(schema.get("type"))
        fitted: Schema = {"type": types[0] if len(types) == 1 else types} if types else {}
        if not types or "object" in types:
            fitted |= self._object(schema, depth)
        if not types or "array" in types:
            fitted |= self._array(schema, depth)
        if not types or "string" in types:
            fitted |= _string(schema)
        if "integer" in types and "number" not in types:
            fitted |= _integer(schema)
        return fitted

    def _branched(self, fitted: Fitted, keyword: str, branches: list[Fitted]) -> Fitted:
        """`fitted` and one of the branches; they take it in, as the engine looks at nothing beside them."""
        if not branches or {} in branches or (fitted != {} and len(branches) > _MAX_MERGED_BRANCHES):
            return fitted
        merged = [merge(fitted, branch, self._definitions) for branch in branches]
        possible = [branch for branch in merged if branch is not None]
        if not possible:
            return None
        return fitted if {} in possible else {keyword: possible}

    def _define(self, pointer: str, depth: int) -> bool:
        """Fit the definition that a reference names; False if the engine cannot find it."""
        if pointer in self._definitions:
            return True
        start, *path = pointer.split("/")
        if start != "#" or len(path) != 2 or path[0] not in _CONTAINERS or set(path[1]) & set("~%"):
            return False
        definitions = self._root.get(path[0])
        if not isinstance(definitions, Mapping) or path[1] not in definitions:
            return False
        self._definitions[pointer] = {}  # referred to by itself, it is found
        self._definitions[pointer] = self._fit(definitions[path[1]], depth + 1) or {}
        return True

    def _cut_circles(self) -> None:
        """Free the definitions that come back to themselves without a bracket in between."""
        for pointer in list(self._definitions):
            seen: set[str] = set()
            ahead = list(_heads(self._definitions[pointer]))
            while ahead:
                head = ahead.pop()
                if head not in seen:
                    seen.add(head)
                    ahead += _heads(self._definitions[head])
            if pointer in seen:
                self._definitions[pointer] = {}

    def _listed(self, schema: Mapping[str, Any]) -> Schema | None:
        """The schema of listed values, if it is one; the engine looks at nothing beside the list."""
        if "const" in schema and _shallow(schema["const"]):
            return {"const": schema["const"]}
        values = schema.get("enum")
        if not isinstance(values, list) or not values or len(values) > self._enum_values_left:
            return None
        if not all(_shallow(value) for value in values):
            return None
        self._enum_values_left -= len(values)
        return {"enum": values}

    def _each(self, schemas: object, depth: int) -> list[Fitted]:
        return [self._fit(schema, depth + 1) for schema in schemas] if isinstance(schemas, list) else []

    def _object(self, schema: Mapping[str, Any], depth: int) -> Schema:
        fitted: Schema = {}
        others = self._fit(schema.get("additionalProperties", True), depth + 1)
        properties, required = schema.get("properties"), schema.get("required")
        every = {name: self._fit(value, depth + 1) for name, value in _items(properties)}
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        # A required name that has no schema would not be generated.
        every |= {name: others for name in names if name not in every}
        fitted_properties = {name: value for name, value in every.items() if value is not None}
        if fitted_properties or isinstance(properties, Mapping):
            fitted["properties"] = fitted_properties
        if possible := [name for name in dict.fromkeys(names) if name in fitted_properties]:
            fitted["required"] = possible
        if "additionalProperties" in schema and "patternProperties" not in schema:
            fitted["additionalProperties"] = False if others is None else others or True
        return fitted

    def _array(self, schema: Mapping[str, Any], depth: int) -> Schema:
        bounds = _bounds(schema, "minItems", "maxItems", MAX_REPEATS)
        first = self._each(schema.get("prefixItems"), depth)
        if first:  # the engine takes it for the whole array
            whole = bounds.get("minItems", 0) <= len(first) <= bounds.get("maxItems", len(first))
            return {"prefixItems": first} if whole and None not in first else {}
        every = self._fit(schema.get("items", True), depth + 1)
        return {"items": every, **bounds} if every else bounds


def _references(schema: object) -> Iterable[str]:
    """Every pointer in a fitted schema, but not in the values that it lists."""
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for keyword, value in schema.items():
            if keyword == "properties":
                yield from _references(list(value.values()))
            elif keyword not in LISTS:
                yield from _references(value)


def _heads(schema: Schema) -> Iterable[str]:
    """The definitions with which text that matches the schema may begin."""
    if "$ref" in schema:
        yield schema["$ref"]
    for keyword in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(keyword, ()):
            yield from _heads(branch)


def _items(properties: object) -> Iterable[tuple[str, object]]:
    return properties.items() if isinstance(properties, Mapping) else ()


def _types(named: object) -> list[str]:
    """The types that are named, none if one of them is unknown."""
    types = [named] if isinstance(named, str) else named
    if not isinstance(types, list) or not all(name in _TYPES for name in types):
        return []
    return types


def _string(schema: Mapping[str, Any]) -> Schema:
    fitted = _bounds(schema, "minLength", "maxLength", MAX_REPEATS)
    if schema.get("format") in _FORMATS:
        fitted["format"] = schema["format"]
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (usable := fit_pattern(pattern)):
        fitted["pattern"] = usable
    return fitted


def _integer(schema: Mapping[str, Any]) -> Schema:
    """Bounds as whole numbers; none when they exclude each other, which the engine does not survive."""
    lower = [math.ceil(n) for n in _numbers(schema, "minimum")]
    lower += [math.floor(n) + 1 for n in _numbers(schema, "exclusiveMinimum")]
    upper = [math.floor(n) for n in _numbers(schema, "maximum")]
    upper += [math.ceil(n) - 1 for n in _numbers(schema, "exclusiveMaximum")]
    fitted = ({"minimum": max(lower)} if lower else {}) | ({"maximum": min(upper)} if upper else {})
    return {} if lower and upper and max(lower) > min(upper) else fitted


def _numbers(schema: Mapping[str, Any], keyword: str) -> list[int | float]:
    value = schema.get(keyword)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _EXACT
    return [value] if usable and value is not None else []


def _bounds(schema: Mapping[str, Any], least: str, most: str, limit: int) -> Schema:
    """Both bounds as far as they are sane; none when they exclude each other."""
    found = {
        keyword: int(n) for keyword in (least, most) for n in _numbers(schema, keyword) if 0 <= n <= limit
    }
    return {} if found.get(least, 0) > found.get(most, limit) else found


def _shallow(value: object, depth: int = 0) -> bool:
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, Mapping):
        return all(_shallow(item, depth + 1) for item in value.values())
    if isinstance(value, list):
        return all(_shallow(item, depth + 1) for item in value)
    return True
