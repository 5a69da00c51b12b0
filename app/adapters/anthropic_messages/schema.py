"""Fit a JSON Schema to what a Messages endpoint enforces.

It refuses a schema with a keyword that it does not know, an object that is open, and one that contains
itself. What is left out here may let answers through that are not valid: check each against the full schema.
Where a schema cannot be said without forbidding what it means to allow, nothing is enforced at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

MAX_DEPTH: Final = 16
"""Of schemas inside schemas, references followed."""
MAX_SCHEMAS: Final = 500
"""In the whole; a schema that is referred to twice counts twice."""

MAX_OPTIONAL: Final = 24
"""Members that may be missing, in the whole."""
MAX_UNIONS: Final = 16
"""Schemas that name several types or branches, in the whole."""

_KEPT: Final = ("type", "enum", "const", "description", "title")
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_FURTHER: Final = frozenset(
    {"patternProperties", "allOf", "if", "dependentSchemas", "$dynamicRef", "prefixItems"}
)
"""What may speak of members or items that `properties` and `items` do not speak of."""
_CONTAINERS: Final = ("$defs", "definitions")


def fit_schema(schema: Mapping[str, Any]) -> Schema | None:
    """The part of `schema` that can be enforced; None where that is nothing."""
    try:
        return _Fitting(schema).fit(schema, ())
    except _Impossible:
        return None


class _Impossible(Exception):
    """The schema cannot be said so that nothing is forbidden which it allows."""


class _Fitting:
    """One walk over a schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = {"schemas": MAX_SCHEMAS, "optional": MAX_OPTIONAL, "unions": MAX_UNIONS}

    def fit(self, schema: Any, path: tuple[str, ...]) -> Schema:
        """`path` has the reference, or "", of each schema around this one."""
        self._spend("schemas")
        if not isinstance(schema, Mapping) or len(path) > MAX_DEPTH:
            raise _Impossible
        if "$ref" in schema:
            # The target takes the reference's place; what stands beside a reference would be refused.
            return self.fit(self._target(schema["$ref"], path), (*path, schema["$ref"]))
        if schema.keys() & _FURTHER or _cannot_be_said(schema):
            raise _Impossible
        fitted: Schema = {word: schema[word] for word in _KEPT if word in schema}
        inner = (*path, "")
        branches = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(branches, list) and branches:
            self._spend("unions")
            fitted.pop("type", None)
            return fitted | {"anyOf": [self.fit(branch, inner) for branch in branches]}
        kinds = _kinds(schema)
        if len(kinds) > 1:
            self._spend("unions")
        if "object" in kinds:
            fitted |= {"type": schema.get("type", "object"), **self._object(schema, inner)}
        if "array" in kinds:
            fitted["items"] = self.fit(schema.get("items"), inner)
            if schema.get("minItems") in (0, 1):
                fitted["minItems"] = schema["minItems"]
        if "string" in kinds and schema.get("format") in _FORMATS:
            fitted["format"] = schema["format"]
        return fitted

    def _spend(self, what: str, count: int = 1) -> None:
        self._left[what] -= count
        if self._left[what] < 0:
            raise _Impossible

    def _object(self, schema: Mapping[str, Any], path: tuple[str, ...]) -> Schema:
        members, required = schema.get("properties"), schema.get("required", [])
        if not isinstance(members, Mapping) or not members or schema.get("additionalProperties", False):
            raise _Impossible
        if not members.keys() >= set(required):
            raise _Impossible
        self._spend("optional", len(members) - len(required))
        return {
            "properties": {name: self.fit(member, path) for name, member in members.items()},
            "required": list(required),
            "additionalProperties": False,
        }

    def _target(self, pointer: Any, path: tuple[str, ...]) -> Any:
        steps = pointer.split("/") if isinstance(pointer, str) else []
        if len(steps) != 3 or steps[0] != "#" or steps[1] not in _CONTAINERS or pointer in path:
            raise _Impossible
        container = self._root.get(steps[1])
        name = steps[2].replace("~1", "/").replace("~0", "~")
        if not isinstance(container, Mapping) or name not in container:
            raise _Impossible
        return container[name]


def _kinds(schema: Mapping[str, Any]) -> list[Any]:
    """The types that a schema names; raises for one that admits anything."""
    kinds = schema.get("type", "object" if "properties" in schema else None)
    if kinds is not None:
        return kinds if isinstance(kinds, list) else [kinds]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        raise _Impossible
    return []


def _cannot_be_said(schema: Mapping[str, Any]) -> bool:
    """Whether members are named here and in branches, or values are listed that are no scalars."""
    listed = [schema.get("const"), *(schema.get("enum") or ())]
    several = "properties" in schema and ("anyOf" in schema or "oneOf" in schema)
    return several or any(isinstance(value, dict | list) for value in listed)
