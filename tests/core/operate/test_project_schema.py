"""Fitting schemas to an engine that follows only some of JSON Schema: tables, and what holds for all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.operate.project_merge import BOUNDS
from app.core.operate.project_pattern import fit_pattern
from app.core.operate.project_schema import MAX_BYTES, MAX_DEPTH, MAX_ENUM_VALUES, fit_schema

STRING = {"type": "string"}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "label": STRING,
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["label"],
        }
    },
}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = STRING
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def field(schema: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"]}


KEPT: dict[str, dict[str, Any]] = {
    "an object": {
        "type": "object",
        "properties": {"a": STRING, "b": {"type": ["integer", "null"]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "a recursive definition": TREE,
    "a list of values": {"enum": ["a", 1, None, {"b": []}]},
    "a constant": field({"const": {"a": 1}}),
    "a union": {"anyOf": [STRING, {"type": "null"}]},
    "a tuple": {"type": "array", "prefixItems": [STRING, {"type": "integer"}]},
    "bounded items": {"type": "array", "items": STRING, "minItems": 1, "maxItems": 3},
    "a bounded integer": {"type": "integer", "minimum": 1, "maximum": 5},
    "a format": {"type": "string", "format": "date-time"},
    "a pattern": {"type": "string", "pattern": "^[a-z]{2,4}(-x|y)?$"},
    "other properties": {"type": "object", "additionalProperties": {"type": "integer"}},
    "names that are keywords": field({"type": "object", "properties": {"$ref": STRING, "enum": STRING}}),
}
CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "annotations go": (
        {"$schema": "x", "title": "t", "type": "string", "description": "d", "default": "e", "examples": []},
        STRING,
    ),
    "a closed tuple": (
        {"type": "array", "prefixItems": [STRING], "items": False},
        {"type": "array", "prefixItems": [STRING]},
    ),
    "a tuple that must be longer": (
        {"type": "array", "prefixItems": [STRING], "minItems": 3},
        {"type": "array"},
    ),
    "items of any kind": ({"type": "array", "items": True}, {"type": "array"}),
    "no items": ({"type": "array", "items": False}, {"type": "array"}),
    "a free property": (
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {}}},
    ),
    "a forbidden property": (
        {"type": "object", "properties": {"a": False, "b": STRING}, "required": ["b"]},
        {"type": "object", "properties": {"b": STRING}, "required": ["b"]},
    ),
    "a required property without schema": (
        {"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}},
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": {"type": "integer"},
        },
    ),
    "patterns for names": (
        {"type": "object", "patternProperties": {"^a": STRING}, "additionalProperties": False},
        {"type": "object"},
    ),
    "a remote reference": (field({"$ref": "https://example.com/x"}), field({})),
    "a reference to the whole": (field({"$ref": "#"}), field({})),
    "a reference into the depth": (field({"$ref": "#/properties/y"}), field({})),
    "a reference to nothing": (field({"$ref": "#/$defs/none"}), field({})),
    "keywords beside a reference": (
        {**field({"$ref": "#/$defs/a", "description": "d"}), "$defs": {"a": STRING, "unused": STRING}},
        {**field({"$ref": "#/$defs/a"}), "$defs": {"a": STRING}},
    ),
    "definitions in a circle": (
        {**field({"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {**field({"$ref": "#/$defs/a"}), "$defs": {"a": {}}},
    ),
    "a definition that may begin with itself": (
        {
            **field({"$ref": "#/$defs/a"}),
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, STRING]}},
        },
        {**field({"$ref": "#/$defs/a"}), "$defs": {"a": {}}},
    ),
    "an empty list of values": ({"type": "string", "enum": []}, STRING),
    "an unknown type": (field({"type": "any"}), field({})),
    "an unknown type among others": (field({"type": ["string", "any"]}), field({})),
    "no type": (field({"type": []}), field({})),
    "more items than it counts": (
        {"type": "array", "items": STRING, "minItems": 100_000},
        {"type": "array", "items": STRING},
    ),
    "lengths that exclude each other": ({"type": "string", "minLength": 5, "maxLength": 2}, STRING),
    "a negative length": ({"type": "string", "minLength": -1}, STRING),
    "numbers that exclude each other": (
        {"type": "integer", "minimum": 5, "maximum": 2},
        {"type": "integer"},
    ),
    "a bound from an older draft": (
        {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
        {"type": "integer", "minimum": 1},
    ),
    "bounds between integers": (
        {"type": "integer", "minimum": 0.5, "exclusiveMaximum": 9.5},
        {"type": "integer", "minimum": 1, "maximum": 9},
    ),
    "bounds of numbers are not followed": (
        {"type": "number", "minimum": 0, "multipleOf": 0.5},
        {"type": "number"},
    ),
    "keywords that are not followed": (
        {"type": "array", "items": STRING, "uniqueItems": True, "contains": STRING, "not": {}, "if": {}},
        {"type": "array", "items": STRING},
    ),
    "keywords of other types": ({"type": "integer", "minLength": 3, "properties": {}}, {"type": "integer"}),
    "an unknown format": ({"type": "string", "format": "email"}, STRING),
    "a pattern that is not anchored": ({"type": "string", "pattern": "ab"}, STRING),
    "a union with everything": (field({"anyOf": [True, STRING]}), field({})),
    "a union with nothing": ({"anyOf": [False, STRING]}, {"anyOf": [STRING]}),
    "an empty union": ({"type": "string", "anyOf": []}, STRING),
    "a union beside properties": (
        {**field(STRING), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"x": STRING, name: {}},
                    "required": ["x", name],
                }
                for name in ("a", "b")
            ]
        },
    ),
    "many branches beside properties": (
        {**field(STRING), "anyOf": [{"required": [f"n{i}"]} for i in range(20)]},
        field(STRING),
    ),
    "parts that are no objects": (
        {"allOf": [{"type": "integer"}, {"minimum": 3}]},
        {"type": "integer"},
    ),
    "parts with a base": (
        {
            "allOf": [{"$ref": "#/$defs/base"}],
            "properties": {"b": STRING},
            "required": ["b"],
            "$defs": {"base": {"type": "object", "properties": {"a": STRING}, "required": ["a"]}},
        },
        {"type": "object", "properties": {"b": STRING, "a": STRING}, "required": ["b", "a"]},
    ),
    "types that both allow": (
        {"type": ["string", "null"], "allOf": [{"type": ["null", "integer"]}]},
        {"type": "null"},
    ),
}
NOTHING: dict[str, dict[str, Any] | bool] = {
    "true": True,
    "false": False,
    "the empty schema": {},
    "only annotations": {"title": "t"},
    "only what is not followed": {"not": {"type": "string"}},
    "the whole is remote": {"$ref": "https://example.com/x"},
    "the whole is a circle": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "types that exclude each other": {"type": "string", "allOf": [{"type": "integer"}]},
    "too large": {"type": "object", "properties": {f"property {i:050}": STRING for i in range(300)}},
}


@pytest.mark.parametrize("name", KEPT)
def test_what_the_engine_follows_is_kept(name: str) -> None:
    assert fit_schema(KEPT[name]) == KEPT[name]


@pytest.mark.parametrize("name", CHANGED)
def test_what_it_does_not_follow_is_changed(name: str) -> None:
    schema, expected = CHANGED[name]
    before = json.dumps(schema)
    assert fit_schema(schema) == expected
    assert json.dumps(schema) == before, "the caller's schema is left alone"


@pytest.mark.parametrize("name", NOTHING)
def test_when_nothing_is_left_nothing_is_sent(name: str) -> None:
    assert fit_schema(NOTHING[name]) is None


def test_depth_is_cut() -> None:
    assert fit_schema(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    cut = fit_schema(nested(20_000))
    assert cut is not None
    assert json.dumps(cut).count("items") == MAX_DEPTH
    assert fit_schema({"type": "array", "items": {"const": nested(200)}}) == {"type": "array"}


def test_listed_values_are_counted_over_the_whole_schema() -> None:
    half = {"enum": list(range(MAX_ENUM_VALUES // 2))}
    fitted = fit_schema({"type": "object", "properties": {"a": half, "b": half, "c": half}})
    assert fitted is not None
    assert fitted["properties"] == {"a": half, "b": half, "c": {}}


def test_definitions_that_contain_each_other_and_must_both_hold_do_not_go_on_for_ever() -> None:
    pair = {
        name: {"type": "object", "properties": {"next": {"$ref": f"#/$defs/{name}"}, name: STRING}}
        for name in ("a", "b")
    }
    fitted = fit_schema({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": pair})
    assert fitted is not None
    assert set(fitted["properties"]) == {"next", "a", "b"}


@pytest.mark.parametrize(
    ("pattern", "fitted"),
    [
        (r"^\d{4}-\d{2}$", "^[0-9]{4}-[0-9]{2}$"),
        (r"^[\w.-]+@\w+$", "^[A-Za-z0-9_.-]+@[A-Za-z0-9_]+$"),
        (r"^a\sb\/c$", "^a[ ]b/c$"),
        (r"^(?:ab|cd)+$", "^(?:ab|cd)+$"),
        (r"^\[x\]\.$", r"^\[x\]\.$"),
        ("^$", "^$"),
        ("abc", None),
        ("^abc", None),
        ("^a(?=b)c$", None),
        ("^a+?$", None),
        ("^a{2}{3}$", None),
        ("^a{5000}$", None),
        ("^a{5,2}$", None),
        ("^(a|b$", None),
        ("^[a-$", None),
        ("^[z-a]$", None),
        (r"^\p{L}$", None),
        (r"^\S$", None),
        (r"^\bword$", None),
        (r"^(a)\1$", None),
        ("^é{2}$", None),
        ('^"$', None),
        ("^a\tb$", None),
        ("^*a$", None),
        ("^a|*$", None),
        ("^" + "a" * 500 + "$", None),
        ("^", None),
        ("$", None),
    ],
)
def test_patterns_are_translated_or_left_out(pattern: str, fitted: str | None) -> None:
    assert fit_pattern(pattern) == fitted


_leaves: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.sampled_from([{}, STRING, {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"$ref": "#"}, {"$ref": "x"}]),
    st.fixed_dictionaries({"type": st.sampled_from(["integer", "any", ["string", "null"], []])}),
    st.fixed_dictionaries({"enum": st.lists(st.integers() | st.text(max_size=3), max_size=4)}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "array", "integer"])},
        optional={
            keyword: st.integers(-5, 2000) | st.floats() | st.none()
            for keyword in ("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum")
        },
    ),
    st.fixed_dictionaries({"pattern": st.text("ab^$[](){}?*+|\\dw-19,", max_size=8).map("^{}$".format)}),
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", ["object", "null"], "string"]),
            "properties": st.dictionaries(st.sampled_from(["a", "b", "$ref", "enum"]), inner, max_size=3),
            "required": st.lists(st.sampled_from(["a", "b", "c"]), max_size=3),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": several,
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
        },
    )


_schemas = st.builds(
    lambda schema, a, b: {**schema, "$defs": {"a": a, "b": b}} if isinstance(schema, dict) else schema,
    st.recursive(_leaves, _larger, max_leaves=12),
    st.recursive(_leaves, _larger, max_leaves=6),
    st.recursive(_leaves, _larger, max_leaves=6),
)


def _schemas_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        inner += schema.get(keyword, [])
    inner += [schema[keyword] for keyword in ("items", "additionalProperties") if keyword in schema]
    for other in inner:
        if not isinstance(other, bool):
            yield from _schemas_in(other)


@given(_schemas)
def test_a_fitted_schema_fits(schema: dict[str, Any] | bool) -> None:
    fitted = fit_schema(schema)
    if fitted is None:
        return
    assert fit_schema(fitted) == fitted
    assert len(json.dumps(fitted, separators=(",", ":"))) <= MAX_BYTES
    for part in _schemas_in(fitted):
        alone = {"$ref", "const", "enum", "anyOf", "oneOf"} & set(part)
        assert not alone or set(part) - {"$defs", "definitions"} == alone, "nothing stands beside these"
        assert not {"not", "allOf", "patternProperties"} & set(part)
        assert part.get("items", {}) != {} or "items" not in part
        for least, most in BOUNDS:
            if least in part and most in part:
                assert part[least] <= part[most]
        for name in part.get("required", ()):
            assert name in part["properties"]
        if "$ref" in part:
            assert part["$ref"].split("/")[-1] in fitted["$defs"]
