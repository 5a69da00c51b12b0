"""What of a JSON Schema a Messages endpoint is asked to enforce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.anthropic_messages.schema import MAX_OPTIONAL, MAX_UNIONS, fit_schema

TEXT = {"type": "string"}


def thing(**members: Any) -> dict[str, Any]:
    """A schema of an object with these members."""
    return {"type": "object", "properties": members}


def closed(*required: str, **members: Any) -> dict[str, Any]:
    """The same as it is sent."""
    return {**thing(**members), "required": list(required), "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (thing(a=TEXT), closed(a=TEXT)),
        ({"properties": {"a": TEXT}}, closed(a=TEXT)),
        ({**thing(a=TEXT), "required": ["a"], "additionalProperties": False}, closed("a", a=TEXT)),
        (
            thing(a={"type": "integer", "minimum": 1, "title": "A"}),
            closed(a={"type": "integer", "title": "A"}),
        ),
        (thing(a={**TEXT, "maxLength": 3, "pattern": "x"}), closed(a=TEXT)),
        (thing(a={**TEXT, "format": "date"}), closed(a={**TEXT, "format": "date"})),
        (thing(a={**TEXT, "format": "odd"}), closed(a=TEXT)),
        (thing(a={"enum": ["x", 1, None]}), closed(a={"enum": ["x", 1, None]})),
        (thing(a={"type": ["string", "null"]}), closed(a={"type": ["string", "null"]})),
        (thing(a=thing(b=TEXT)), closed(a=closed(b=TEXT))),
        (
            {"type": "array", "items": thing(a=TEXT), "minItems": 1, "maxItems": 3},
            {"type": "array", "items": closed(a=TEXT), "minItems": 1},
        ),
        ({"type": "array", "items": TEXT, "minItems": 2}, {"type": "array", "items": TEXT}),
        (thing(a={"oneOf": [TEXT, {"type": "null"}]}), closed(a={"anyOf": [TEXT, {"type": "null"}]})),
        ({"$ref": "#/$defs/A", "$defs": {"A": thing(a=TEXT)}}, closed(a=TEXT)),
    ],
)
def test_fitted(schema: dict[str, Any], sent: dict[str, Any]) -> None:
    assert fit_schema(schema) == sent


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        thing(),
        {**thing(a=TEXT), "additionalProperties": True},
        {**thing(a=TEXT), "additionalProperties": TEXT},
        {**thing(a=TEXT), "required": ["b"]},
        {**thing(a=TEXT), "patternProperties": {"^x": TEXT}},
        {**thing(a=TEXT), "allOf": [thing(b=TEXT)]},
        {**thing(a=TEXT), "anyOf": [thing(b=TEXT)]},
        thing(a={}),
        thing(a=True),
        thing(a={"type": "array"}),
        thing(a={"type": "array", "items": TEXT, "prefixItems": [TEXT]}),
        thing(a={"enum": [{"b": 1}]}),
        {"$ref": "#/$defs/A", "$defs": {"A": thing(a={"$ref": "#/$defs/A"})}},
        {"$ref": "#/$defs/A"},
        {"$ref": "https://schemas.test/a"},
    ],
    ids=str,
)
def test_not_enforced_at_all(schema: dict[str, Any]) -> None:
    assert fit_schema(schema) is None


def test_a_small_schema_that_unfolds_into_a_large_one_is_not_enforced() -> None:
    def unfolding(steps: int) -> dict[str, Any]:
        defs: dict[str, Any] = {f"A{steps}": TEXT}
        for n in range(steps):
            inner = {"$ref": f"#/$defs/A{n + 1}"}
            defs[f"A{n}"] = {**thing(a=inner, b=inner), "required": ["a", "b"]}
        return {"$ref": "#/$defs/A0", "$defs": defs}

    assert fit_schema(unfolding(6)) is not None
    assert fit_schema(unfolding(7)) is None  # the eighth level would not matter any more
    assert fit_schema(unfolding(100)) is None


@pytest.mark.parametrize(
    ("most", "schema_of"),
    [
        (MAX_OPTIONAL, lambda count: thing(**{f"m{n}": TEXT for n in range(count)})),
        (MAX_UNIONS, lambda count: _all_required({"type": ["string", "null"]}, count)),
        (MAX_UNIONS, lambda count: _all_required({"anyOf": [TEXT, {"type": "null"}]}, count)),
    ],
)
def test_no_more_is_asked_for_than_the_wire_takes(
    most: int, schema_of: Callable[[int], dict[str, Any]]
) -> None:
    assert fit_schema(schema_of(most)) is not None
    assert fit_schema(schema_of(most + 1)) is None


def _all_required(member: dict[str, Any], count: int) -> dict[str, Any]:
    names = [f"m{n}" for n in range(count)]
    return {**thing(**dict.fromkeys(names, member)), "required": names}


leaves = st.sampled_from(
    [TEXT, {"type": "integer", "minimum": 2}, {"enum": ["x", 1]}, {"type": ["string", "null"]}]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: {**thing(a=a, b=b), "required": ["a"]}, inner, inner),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
    ),
    max_leaves=5,
)
values = st.recursive(
    st.sampled_from(["x", "", 1, 3, None]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.fixed_dictionaries({}, optional={"a": inner, "b": inner}),
    ),
    max_leaves=5,
)


@given(schemas, values)
def test_what_is_valid_stays_allowed(schema: dict[str, Any], value: Any) -> None:
    sent = fit_schema(schema)
    assert sent is not None
    if jsonschema_rs.Draft202012Validator(schema).is_valid(value):
        assert jsonschema_rs.Draft202012Validator(sent).is_valid(value)
