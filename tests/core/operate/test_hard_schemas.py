"""Schemas that are hard to show and to check: what fits them comes back unchanged, in every form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.json_schema import compile_schema
from app.core.operate.field_models import NamedField
from app.core.operate.moved_schema import fragment, moved, refers_to_root
from app.core.operate.read_output import read_output
from app.core.operate.schema import AnswerContract, contract_for
from app.core.prompt import ToolSchema

ADD = ToolSchema("add", "Adds.", {"type": "object"})
REASON = {"title": "t", "content": "c", "confidence_score": 0.5}
OWN = {"action_required": False, "action_requests": []}

NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["name"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {
        "leaf": {"type": "integer"},
        "branch": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#"}]}},
    },
    "$ref": "#/$defs/branch",
}
HOSTILE = [
    "",
    "class",
    "__init__",
    "self",
    "a b",
    "ä/é",
    "a~b",
    "%24",
    "$ref",
    "const",
    "日本",
    "🦦",
    "1",
    "None",
]
NAMED = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in HOSTILE},
    "required": HOSTILE,
    "additionalProperties": False,
}
WIDE = {"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(1_000)}}

FITTING: list[tuple[str, Any, Any]] = [
    ("nested", {"type": "object", "properties": {"a": NODE | {"title": "N"}}}, {"a": {"name": "x"}}),
    ("recursive object", NODE, {"name": "a", "next": {"name": "b", "next": None}}),
    ("recursive array", {"type": "array", "items": {"$ref": "#"}}, [[], [[]]]),
    ("recursive through definitions", TREE, [1, [2, []]]),
    ("anyOf at the root", {"anyOf": [{"type": "integer"}, NODE]}, {"name": "x"}),
    ("oneOf at the root", {"oneOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
    ("enum at the root", {"enum": [1, "a", None, {"b": [2]}]}, {"b": [2]}),
    ("const at the root", {"const": {"$ref": "#"}}, {"$ref": "#"}),
    ("array at the root", {"type": "array", "items": {"type": "string"}}, ["a", "ü"]),
    ("scalar at the root", {"type": "number"}, 0.5),
    ("anything", {}, [None, {"": 1}]),
    ("hostile names", NAMED, {name: n for n, name in enumerate(HOSTILE)}),
    ("a thousand fields", WIDE, {f"f{n}": n for n in range(1_000)}),
    ("an open object", {"type": "object"}, {"action_plan": [], "value": 1}),
    ("long integers", {"type": "array", "items": {"type": "integer"}}, [18446744073709551617, -(2**53) - 1]),
]


def contracts(schema: Any) -> list[tuple[AnswerContract, dict[str, Any]]]:
    """The ways in which a schema can be asked for, each with what an answer holds besides."""
    ways: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"reason": False}, {}),
        ({"reason": True}, {"reason": REASON}),
        ({"reason": False, "tools": [ADD]}, OWN),
        ({"reason": True, "tools": [ADD]}, {"reason": REASON, **OWN}),
        ({"reason": False, "fields": [NamedField("further", {"type": "integer"})]}, {"further": 1}),
        (
            {"reason": False, "fields": [NamedField("self", {"anyOf": [{"type": "null"}, NODE]})]},
            {"self": {"name": "n"}},
        ),
    ]
    out = []
    for options, beside in ways:
        if beside.keys() & (schema.get("properties") or {}).keys():
            continue
        contract = contract_for(schema, **options)
        assert contract is not None
        out.append((contract, beside))
    return out


def answer_to(contract: AnswerContract, value: Any, beside: dict[str, Any]) -> Any:
    """What a model writes for a value."""
    if not beside:
        return value
    return {"value": value, **beside} if contract.wrapped else {**value, **beside}


@pytest.mark.parametrize(("schema", "value"), [row[1:] for row in FITTING], ids=[row[0] for row in FITTING])
def test_what_fits_comes_back_unchanged(schema: Any, value: Any) -> None:
    assert compile_schema(schema).accepts(value)
    for contract, beside in contracts(schema):
        answer = answer_to(contract, value, beside)
        reading = read_output(json.dumps(answer), contract, finish_reason="stop")
        assert reading.failure is None, reading.failure
        assert contract.result(reading.value) == answer
        assert compile_schema(contract.request).accepts(answer), "what the model is shown allows it"


REFUSED: list[tuple[str, Any, Any]] = [
    ("recursive object", NODE, {"name": "a", "next": {"name": 1}}),
    ("recursive array", {"type": "array", "items": {"$ref": "#"}}, [[], [1]]),
    ("recursive through definitions", TREE, [1, ["x"]]),
    ("const at the root", {"const": {"$ref": "#"}}, {"$ref": "#/x"}),
    ("hostile names", NAMED, {name: "x" for name in HOSTILE}),
]


@pytest.mark.parametrize(("schema", "value"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_does_not_fit_is_refused_in_every_form(schema: Any, value: Any) -> None:
    for contract, beside in contracts(schema):
        answer = answer_to(contract, value, beside)
        assert contract.check(answer)
        assert not compile_schema(contract.request).accepts(answer)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("listable", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_further_fields_references_stay_its_own(name: str, nullable: bool, listable: bool) -> None:
    field = NamedField(name, NODE, nullable, listable)
    contract = contract_for({"type": "object", "properties": {"x": {}}}, reason=False, fields=[field])
    assert contract is not None
    shown = compile_schema(contract.request)
    for deep, fits in (("b", True), (1, False)):
        value: Any = {"name": "a", "next": {"name": deep}}
        answer = {"x": 1, name: [value] if listable else value}
        assert shown.accepts(answer) is fits
        assert (contract.check(answer) == []) is fits


names = st.text(max_size=6)
schemas = st.recursive(
    st.sampled_from(
        [
            {},
            {"type": "string"},
            {"type": "integer"},
            {"enum": [1, "a"]},
            {"$ref": "#/$defs/d"},
            {"$ref": "#"},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda of: {"anyOf": of}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda properties: {"type": "object", "properties": properties},
            st.dictionaries(names, inner, max_size=3),
        ),
    ),
    max_leaves=8,
)
values = st.recursive(
    st.sampled_from([None, 1, "a", "b", 2.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(schemas, values, names)
def test_a_moved_schema_says_what_it_said(schema: dict[str, Any], value: Any, name: str) -> None:
    whole = {"$defs": {"d": {"type": "array", "items": {"type": "integer"}}}, **schema}
    # Two references that lead to each other and nowhere else say nothing.
    if schema.get("$ref") == "#" or any(part.get("$ref") == "#" for part in schema.get("anyOf", ())):
        return
    there = fragment("properties", name)
    around = {"properties": {name: moved(whole, there)}}
    before, after = compile_schema(whole), compile_schema(around)
    assert before.accepts(value) == after.accepts({name: value})


def test_what_looks_like_a_reference_is_none() -> None:
    schema = {
        "properties": {"$ref": {"type": "string"}, "enum": {"$ref": "#"}},
        "const": {"$ref": "#"},
        "examples": [{"$ref": "#"}],
    }
    there = moved(schema, "#/x")
    assert there["properties"] == {"$ref": {"type": "string"}, "enum": {"$ref": "#/x"}}
    assert there["const"] == {"$ref": "#"}
    assert there["examples"] == [{"$ref": "#"}]
    assert refers_to_root(schema)
    assert not refers_to_root({"const": {"$ref": "#"}, "properties": {"$ref": {"const": "#"}}})
    assert moved({"$ref": "#anchor"}, "#/x") == {"$ref": "#anchor"}


FABRICATED = {"function": "add", "arguments": {}, "output": 1, "error": None, "call_id": "x", "status": "y"}


@pytest.mark.parametrize("reason", [False, True])
@pytest.mark.parametrize("tools", [[ADD], []])
@pytest.mark.parametrize(
    "schema", [{"type": "object"}, {"type": "array"}, NODE], ids=["open", "array", "closed"]
)
def test_responses_that_a_model_makes_up_are_dropped_where_actions_are_on(
    schema: Any, tools: list[ToolSchema], reason: bool
) -> None:
    contract = contract_for(schema, reason=reason, tools=tools, actions=True)
    assert contract is not None
    assert "action_responses" not in json.dumps(contract.request)
    value: Any = [1] if schema.get("type") == "array" else {"name": "n"}
    beside = {**({"reason": REASON} if reason else {}), **(OWN if tools else {})}
    answer = answer_to(contract, value, beside)
    if isinstance(answer, dict):
        made_up = {**answer, "action_responses": [FABRICATED]}
        reading = read_output(json.dumps(made_up), contract, finish_reason="stop")
        assert reading.failure is None
        assert contract.result(reading.value) == answer
