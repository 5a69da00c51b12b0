"""JSON Schemas as a grammar has them: most are right, some are strange, and few mean what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from tests.support.fuzzing import json_of, nearly

_TYPES: Final = ["null", "boolean", "integer", "number", "string", "array", "object"]
_NAMES: Final = [
    "a",
    "b",
    "value",
    "reason",
    "action_requests",
    "title",
    "",
    "a/b~",
    "$ref",
    "__class__",
    "ä",
]
_PATTERNS: Final = [
    *(
        "^a+$",
        "(a+)+$",
        "^(a|a)*b",
        r"^\p{L}{2,50}$",
        "a{1000}",
        r"(?=a)b",
        r"\d{4}-\d\d",
        "[",
        r"\1",
        "x{1,99999}",
    ),
    *("", ".*.*.*=.*", r"^[\w-]+@[\w-]+$", "\\", "(?i)a", "((((((a{9}){9}){9}){9}){9}){9})", "[\\d-z]", "$^"),
]
_REFS: Final = [
    *(
        "#",
        "#/$defs/a",
        "#/$defs/b",
        "#/properties/a",
        "#a",
        "#/$defs/c/items",
        "#/definitions/a",
        "#/allOf/0",
    ),
    *(
        "other.json",
        "https://example.test/s",
        "#/%24defs/a",
        "#/$defs/a~1b",
        "urn:x",
        "",
        "#/0",
        "file:///etc/passwd",
    ),
]
_FORMATS: Final = [
    "date-time",
    "email",
    "uuid",
    "uri",
    "regex",
    "ipv6",
    "duration",
    "no-such-format",
    "idn-hostname",
]
_DRAFTS: Final = [
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-04/schema#",
    "http://example.test/no-draft",
]

names = st.sampled_from(_NAMES)
few = st.integers(-1, 5) | st.sampled_from([10**6, 10**30, 0.5, 2.0, "1"])
values = json_of(names, max_leaves=5)


def _node(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    listed = st.lists(inner, min_size=1, max_size=4)
    mapped = st.dictionaries(names, inner, max_size=4)
    some_names = st.lists(names, max_size=4)
    members: Mapping[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(_TYPES) | st.lists(st.sampled_from(_TYPES), max_size=3),
        **dict.fromkeys(
            ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), mapped
        ),
        **dict.fromkeys(("anyOf", "allOf", "oneOf", "prefixItems"), listed),
        **dict.fromkeys(
            (
                *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
                *("unevaluatedProperties", "unevaluatedItems", "contentSchema"),
            ),
            inner,
        ),
        "required": some_names,
        "dependentRequired": st.dictionaries(names, some_names, max_size=2),
        "dependencies": st.dictionaries(names, some_names | inner, max_size=2),
        "enum": st.lists(values, max_size=5),
        "const": values,
        "default": values,
        "examples": st.lists(values, max_size=2),
        "pattern": st.sampled_from(_PATTERNS),
        "format": st.sampled_from(_FORMATS),
        "$ref": st.sampled_from(_REFS),
        "$dynamicRef": st.sampled_from(_REFS),
        "$id": st.sampled_from(_REFS),
        **dict.fromkeys(("$anchor", "$dynamicAnchor"), st.sampled_from(["a", "b", "", "1"])),
        "$schema": st.sampled_from(_DRAFTS),
        **dict.fromkeys(("title", "description", "$comment", "contentMediaType"), st.text(max_size=10)),
        **dict.fromkeys(
            ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), few
        ),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), few),
        **dict.fromkeys(("minContains", "maxContains"), few),
        **dict.fromkeys(("uniqueItems", "nullable", "deprecated", "readOnly"), st.booleans()),
        "discriminator": st.just({"propertyName": "a"}),
        "propertyOrdering": some_names,
        "strict": st.booleans(),
    }
    pairs = [st.tuples(st.just(name), of) for name, of in members.items()]
    return st.lists(st.one_of(pairs), max_size=5).map(dict)


grammatical = st.recursive(
    st.booleans()
    | st.sampled_from([{"type": kind} for kind in _TYPES])
    | st.sampled_from([{"$ref": r} for r in _REFS]),
    _node,
    max_leaves=12,
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """What clients have mostly: an object of some fields, with definitions."""
    return st.builds(
        lambda fields, defined, more: {**more, "type": "object", "properties": fields, "$defs": defined},
        st.dictionaries(names, inner, max_size=5),
        st.fixed_dictionaries({}, optional={"a": inner, "b": inner, "c": st.just({"items": {"$ref": "#"}})}),
        st.fixed_dictionaries(
            {}, optional={"required": st.lists(names, max_size=3), "additionalProperties": st.booleans()}
        ),
    )


def _deep(kind: str, depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"anyOf": [schema, {"type": "null"}]} if kind == "anyOf" else {"type": kind, "items": schema}
    return schema


def _layers(depth: int, breadth: int) -> dict[str, Any]:
    """References by which there are breadth**depth ways to the last definition."""
    defs: dict[str, Any] = {f"l{depth}": {"type": "integer"}}
    for n in range(depth):
        defs[f"l{n}"] = {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * breadth}
    return {"$ref": "#/$defs/l0", "$defs": defs}


def _wide(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(count)}}


def _patterned(count: int) -> dict[str, Any]:
    return {"type": "object", "patternProperties": {f"^x{n}[a-z]{{1,{n}}}$": {} for n in range(count)}}


large = st.one_of(
    st.builds(_deep, st.sampled_from(["anyOf", "array"]), st.integers(1, 80)),
    st.builds(_layers, st.integers(1, 30), st.integers(1, 6)),
    st.builds(_wide, st.integers(1, 2_500)),
    st.builds(_patterned, st.integers(1, 300)),
    st.builds(lambda count: {"enum": list(range(count))}, st.integers(1, 1_200)),
    st.builds(lambda count: {"enum": [str(n) * 40 for n in range(count)]}, st.integers(1, 1_000)),
    st.builds(lambda count: {"anyOf": [_wide(20)] * count}, st.integers(1, 90)),
    st.builds(
        lambda count: {"allOf": [{"$ref": "#/$defs/a"}] * count, "$defs": {"a": _wide(9)}},
        st.integers(1, 900),
    ),
)

schemas = st.one_of(
    _objects(grammatical),
    _objects(grammatical),
    grammatical,
    large,
    _objects(grammatical).flatmap(lambda schema: nearly(schema, values)),
    json_of(
        st.sampled_from(["type", "properties", "$ref", "items", "anyOf", "object", "#", "enum", "pattern"])
    ),
)
"""Anything that somebody may give as a schema."""
