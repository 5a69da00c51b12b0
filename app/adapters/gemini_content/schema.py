"""Put a JSON Schema into the dialect that the Gemini API takes.

The dialect is a part of OpenAPI's: one type per schema, enumerations of strings, no references, every array
with `items`, every object with `properties`. What it cannot say is left out, so that some answers in the
form of the result are not valid: check each against the whole schema. Where leaving out would forbid what the
schema allows, there is no result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.core.operate.project_merge import merge

Schema = dict[str, Any]

MAX_DEPTH: Final = 32
"""Of schemas inside schemas; a schema that contains itself goes deeper."""
MAX_BYTES: Final = 64_000
"""Of the result as JSON: definitions are written out at each of their uses."""

_WORDS: Final = ("title", "description")
_ABOUT: Final = frozenset({*_WORDS, "$defs", "$schema", "definitions", "default", "examples"})
"""Keywords that say nothing of what is valid."""
_BOUNDS: Final = {
    "ARRAY": ("minItems", "maxItems"),
    "NUMBER": ("minimum", "maximum"),
    "INTEGER": ("minimum", "maximum"),
}
_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")


class _Inexpressible(Exception):
    """The dialect has no schema that admits what this one admits."""


def project(schema: Mapping[str, Any]) -> Schema | None:
    """The schema in the API's dialect; None where it would forbid what `schema` allows, or be too long."""
    try:
        made = _Projection(schema).of(schema, 0)
    except _Inexpressible:
        return None
    return made if len(json.dumps(made)) <= MAX_BYTES else None


class _Projection:
    """One walk over a schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_BYTES // len('{"type":"X"}')

    def of(self, schema: object, depth: int) -> Schema:
        self._left -= 1
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self._left < 0:
            raise _Inexpressible
        whole = self._flat(schema, depth)
        types, nullable = _types(whole)
        branches = _branches(whole)
        if branches and "properties" not in whole:
            made = self._any_of([{**_inherited(whole), **branch} for branch in branches], depth)
        elif len(types) > 1:
            made = self._any_of([{**_inherited(whole), "type": kind} for kind in types], depth)
        elif types:
            made = self._plain(whole, types[0], depth)
        elif nullable:
            return _words(whole) | {"type": "NULL"}
        else:
            raise _Inexpressible
        if nullable:
            _make_nullable(made)
        return made if "anyOf" in made else _words(whole) | made

    def _flat(self, schema: Mapping[str, Any], depth: int) -> Schema:
        """The schema with what it refers to, and all that must hold besides, written into it."""
        whole = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        parts = list(schema.get("allOf") or ())
        if "$ref" in schema:
            parts.append(self._target(schema["$ref"]))
        for part in parts:
            if depth > MAX_DEPTH:
                raise _Inexpressible
            if not isinstance(part, Mapping):
                continue
            further = self._flat(part, depth + 1)
            both = merge(_bare(whole), _bare(further), {})
            if both is None:
                raise _Inexpressible
            whole = _about(further) | _about(whole) | both
        return whole

    def _target(self, pointer: object) -> Any:
        start, *steps = str(pointer).split("/")
        found: Any = self._root
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        if start != "#" or found is None:
            raise _Inexpressible
        return found

    def _any_of(self, branches: Sequence[Mapping[str, Any]], depth: int) -> Schema:
        made = [self.of(branch, depth + 1) for branch in branches]
        kept = [branch for branch in made if branch.get("type") != "NULL"]
        if not kept:
            return {"type": "NULL"}
        one = kept[0] if len(kept) == 1 else {"anyOf": kept}
        if len(kept) < len(made):
            _make_nullable(one)
        return one

    def _plain(self, schema: Schema, kind: str, depth: int) -> Schema:
        made: Schema = {"type": kind.upper()}
        if kind == "object":
            made |= self._object(schema, depth)
        elif kind == "array":
            made["items"] = self.of(schema.get("items"), depth + 1)
        elif kind == "string":
            made |= _string(schema)
        for bound in _BOUNDS.get(made["type"], ()):
            if isinstance(schema.get(bound), int | float):
                made[bound] = schema[bound]
        return made

    def _object(self, schema: Schema, depth: int) -> Schema:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            raise _Inexpressible  # the API refuses objects without properties
        made: Schema = {
            "properties": {name: self.of(said, depth + 1) for name, said in properties.items()},
            # Or the members come in the order of the alphabet, the answer before its reason.
            "propertyOrdering": list(properties),
        }
        if required := [name for name in schema.get("required") or () if name in properties]:
            made["required"] = required
        return made


def _bare(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key not in _ABOUT}


def _about(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key in _ABOUT}


def _types(schema: Schema) -> tuple[list[str], bool]:
    """The types that are not null, and whether null is one."""
    said = schema.get("type")
    types = [said] if isinstance(said, str) else list(said or ())
    if not types:
        values = _values(schema)
        types = list(dict.fromkeys(map(_type_of, values)))
        if not types and "properties" in schema:
            types = ["object"]
        elif not types and "items" in schema:
            types = ["array"]
    elif "null" in types and _values(schema) and None not in _values(schema):
        types.remove("null")
    nullable = "null" in types or schema.get("nullable") is True
    return [kind for kind in types if kind in _TYPES and kind != "null"], nullable


def _values(schema: Schema) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    return list(schema.get("enum") or ())


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"


def _branches(schema: Schema) -> list[Mapping[str, Any]]:
    for keyword in ("anyOf", "oneOf"):
        said = schema.get(keyword)
        if isinstance(said, list) and said:
            if not all(isinstance(branch, Mapping) for branch in said):
                raise _Inexpressible
            return said
    return []


def _inherited(schema: Schema) -> Schema:
    """What stands beside branches and counts for each of them; the API takes nothing beside them."""
    return {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", *_WORDS)}


def _string(schema: Schema) -> Schema:
    made: Schema = {}
    values = [value for value in _values(schema) if value is not None]
    # An empty word in the list makes the API refuse the request.
    if values and all(isinstance(value, str) and value for value in values):
        made |= {"format": "enum", "enum": values}
    elif schema.get("format") == "date-time":
        made["format"] = "date-time"
    return made


def _words(schema: Schema) -> Schema:
    return {word: schema[word] for word in _WORDS if isinstance(schema.get(word), str)}


def _make_nullable(schema: Schema) -> None:
    """Beside `anyOf` the API takes nothing, so its branches say it."""
    if "anyOf" not in schema:
        schema["nullable"] = True
    for branch in schema.get("anyOf", ()):
        _make_nullable(branch)
