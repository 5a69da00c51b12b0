"""Anything as a schema: taken or refused with its place, and never anything else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.core.json_schema import InvalidSchema, compile_schema

WORDS = [
    "$ref",
    "$id",
    "$schema",
    "$anchor",
    "$defs",
    "type",
    "properties",
    "required",
    "items",
    "prefixItems",
    "anyOf",
    "allOf",
    "not",
    "if",
    "enum",
    "const",
    "pattern",
    "patternProperties",
    "multipleOf",
    "minLength",
    "exclusiveMinimum",
    "additionalProperties",
    "dependencies",
    "definitions",
    "unevaluatedProperties",
    "format",
    "a",
    "~/",
]
leaves = st.sampled_from(
    [None, True, False, 0, -1, 0.1, 10**30, "", "string", "#", "#/$defs/a", "a(", "^(a+)+$", "\0",
     "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]
)  # fmt: skip
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=20,
)


@given(anything, anything)
def test_any_json_is_a_schema_or_refused_with_a_place(schema: Any, value: Any) -> None:
    faults: list[Any] = []
    try:
        made = compile_schema(schema, at="/here")
    except InvalidSchema as refused:
        faults = list(refused.errors)
    else:
        assert made.accepts(value) == (made.check(value) == [])
        return
    assert faults
    assert all(fault.pointer.startswith("/here") and fault.message for fault in faults)
