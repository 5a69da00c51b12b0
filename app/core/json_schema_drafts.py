"""Read schemas of older drafts as what they say in 2020-12, the only draft that is compiled here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CURRENT: Final = "https://json-schema.org/draft/2020-12/schema"
DRAFT_04: Final = "http://json-schema.org/draft-04/schema#"

_DRAFTS: Final[Mapping[str, int]] = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
    "spec.openapis.org/oas/3.1/dialect/base": 2020,
}
_NAMED: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Words whose members are schemas under names of the caller's."""
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
_SAYS_NOTHING: Final = frozenset(
    {"$ref", "$id", "$schema", "$comment", "$defs", "definitions", "title", "description", "default"}
)
"""What may stand beside a reference before 2019-09, where everything else beside one was ignored."""


class UnknownDraft(Exception):
    """The schema is written in a dialect that is not known here."""


def draft_of(schema: Mapping[str, Any]) -> int:
    """The draft that `$schema` names: 4, 6, 7, 2019 or 2020, which is also that of a schema without one.

    Raises `UnknownDraft`.
    """
    named = schema.get("$schema")
    if named is None:
        return 2020
    address = named.partition("://")[2].rstrip("#") if isinstance(named, str) else ""
    if address not in _DRAFTS:
        raise UnknownDraft("only the drafts 2020-12, 2019-09, 07, 06 and 04 are read")
    return _DRAFTS[address]


def in_2020(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema as it is written in 2020-12; the same object when it is already. Raises `UnknownDraft`.

    Recurses as deep as the schema is. What makes no sense in its own draft either is left for the compiler.
    """
    draft = draft_of(schema)
    if draft == 2020:
        return schema
    return {**_converted(schema, draft), "$schema": CURRENT}


def _converted(schema: Any, draft: int) -> Any:
    if isinstance(schema, list):
        return [_converted(part, draft) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    if draft < 2019 and isinstance(schema.get("$ref"), str):
        schema = {word: part for word, part in schema.items() if word in _SAYS_NOTHING}
    out: dict[str, Any] = {}
    for word, part in schema.items():
        if word in _DATA:
            out[word] = part
        elif word in _NAMED and isinstance(part, Mapping):
            out[word] = {name: _converted(below, draft) for name, below in part.items()}
        else:
            out[word] = _converted(part, draft)
    _take_tuples(out)
    _take_dependencies(out)
    if draft == 4:
        _take_bounds(out)
        _rename(out, "id", "$id")
    if draft == 2019:
        out.pop("$recursiveAnchor", None)
        _rename(out, "$recursiveRef", "$ref")
    if draft < 2019 and str(out.get("$id", "")).startswith("#"):
        out["$anchor"] = out.pop("$id")[1:]
    return out


def _take_tuples(schema: dict[str, Any]) -> None:
    if isinstance(schema.get("items"), list):
        if first := schema.pop("items"):
            schema["prefixItems"] = first
        _rename(schema, "additionalItems", "items")
    else:
        schema.pop("additionalItems", None)


def _take_dependencies(schema: dict[str, Any]) -> None:
    parts = schema.get("dependencies")
    if not isinstance(parts, Mapping):
        return
    del schema["dependencies"]
    lists = {name: part for name, part in parts.items() if isinstance(part, list)}
    others = {name: part for name, part in parts.items() if name not in lists}
    schema |= {"dependentRequired": lists} if lists else {}
    schema |= {"dependentSchemas": others} if others else {}


def _take_bounds(schema: dict[str, Any]) -> None:
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is False:
            del schema[exclusive]
        elif schema.get(exclusive) is True and bound in schema:
            schema[exclusive] = schema.pop(bound)


def _rename(schema: dict[str, Any], old: str, new: str) -> None:
    if isinstance(schema.get(old), str | Mapping | bool):
        schema[new] = schema.pop(old)
