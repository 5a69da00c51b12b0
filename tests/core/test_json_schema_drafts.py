"""Schemas of older drafts: what they say is what they said there, written as 2020-12."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.json_schema import InvalidSchema, compile_schema, current_schema
from app.core.json_schema_drafts import CURRENT, in_2020

DRAFT_04 = "http://json-schema.org/draft-04/schema#"
DRAFT_06 = "http://json-schema.org/draft-06/schema"
DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


@pytest.mark.parametrize(
    ("draft", "old", "new"),
    [
        (DRAFT_04, {"minimum": 0, "exclusiveMinimum": True}, {"exclusiveMinimum": 0}),
        (DRAFT_04, {"maximum": 9, "exclusiveMaximum": False}, {"maximum": 9}),
        (DRAFT_04, {"id": "http://example.org/s"}, {"$id": "http://example.org/s"}),
        (DRAFT_04, {"properties": {"id": {"minimum": 1}}}, {"properties": {"id": {"minimum": 1}}}),
        (DRAFT_07, {"items": [{"type": "string"}]}, {"prefixItems": [{"type": "string"}]}),
        (DRAFT_07, {"items": [{}], "additionalItems": False}, {"prefixItems": [{}], "items": False}),
        (DRAFT_07, {"items": {}, "additionalItems": False}, {"items": {}}),
        (DRAFT_07, {"dependencies": {"a": ["b"]}}, {"dependentRequired": {"a": ["b"]}}),
        (
            DRAFT_06,
            {"dependencies": {"a": {"required": ["b"]}}},
            {"dependentSchemas": {"a": {"required": ["b"]}}},
        ),
        (DRAFT_07, {"$ref": "#", "minimum": 3, "title": "t"}, {"$ref": "#", "title": "t"}),
        (DRAFT_07, {"definitions": {"a": {"$id": "#x"}}}, {"definitions": {"a": {"$anchor": "x"}}}),
        (DRAFT_2019, {"$recursiveRef": "#", "$recursiveAnchor": True}, {"$ref": "#"}),
        (DRAFT_2019, {"$ref": "#", "minimum": 3}, {"$ref": "#", "minimum": 3}),
        (
            DRAFT_07,
            {"const": {"items": [1]}, "enum": [{"items": []}]},
            {"const": {"items": [1]}, "enum": [{"items": []}]},
        ),
        (
            DRAFT_07,
            {"properties": {"items": {"items": [{}]}}},
            {"properties": {"items": {"prefixItems": [{}]}}},
        ),
    ],
)
def test_what_is_written_otherwise(draft: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    assert in_2020({"$schema": draft, **old}) == {**new, "$schema": CURRENT}
    assert in_2020(old) is old, "a schema that names no draft is one of 2020-12"


def test_a_bound_of_draft_04() -> None:
    old = {
        "$schema": DRAFT_04,
        "type": "object",
        "properties": {"ttl": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
    }
    schema = compile_schema(old)
    assert [fault.pointer for fault in schema.check({"ttl": 0})] == ["/ttl"]
    assert schema.accepts({"ttl": 1})
    assert current_schema(old)["properties"]["ttl"] == {"type": "integer", "exclusiveMinimum": 0}


def test_the_order_of_members_is_the_callers() -> None:
    one = {"$schema": DRAFT_07, "properties": {"b": {}, "a": {}}}
    other = {"properties": {"a": {}, "b": {}}, "$schema": DRAFT_07}
    assert list(current_schema(one)["properties"]) == ["b", "a"]
    assert list(current_schema(other)["properties"]) == ["a", "b"]


def test_what_makes_no_sense_in_its_own_draft_is_refused() -> None:
    with pytest.raises(InvalidSchema) as refused:
        compile_schema({"$schema": DRAFT_04, "exclusiveMinimum": True}, at="/x")
    assert [fault.pointer for fault in refused.value.errors] == ["/x/exclusiveMinimum"]


leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 1},
        {"$ref": "#/definitions/d", "type": "null"},
        {"enum": [1, "a", None]},
        {},
    ]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda first, rest: {"items": first, "additionalItems": rest},
            st.lists(inner, min_size=1, max_size=2),
            inner,
        ),
        st.builds(lambda items: {"items": items}, inner),
        st.builds(lambda part: {"dependencies": {"a": part}}, inner | st.just(["b"])),
        st.builds(
            lambda members: {"properties": members},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        ),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.sampled_from([None, 0, 1, "a", 2.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(schemas, values)
def test_a_value_fits_as_it_did_in_draft_07(schema: dict[str, Any], value: Any) -> None:
    whole = {"$schema": DRAFT_07, "definitions": {"d": {"type": "array"}}, "allOf": [schema]}
    assert compile_schema(whole).accepts(value) == jsonschema_rs.Draft7Validator(whole).is_valid(value)
