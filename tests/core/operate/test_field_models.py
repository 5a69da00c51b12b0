"""Further fields of the answer, and the dictionary form of a response format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.json_schema import compile_schema
from app.core.operate.field_models import NamedField
from app.core.operate.response_fields import schema_of_fields
from app.core.operate.schema import AnswerContract, FieldConflict, contract_for
from app.core.prompt import ToolSchema

ADD = ToolSchema("add", "Adds.", {"type": "object"})
RISK = NamedField("risk", {"type": "integer"})
PLAIN = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}


def made(response_format: Any = None, **options: Any) -> AnswerContract:
    options.setdefault("fields", [RISK])
    contract = contract_for(response_format, **{"reason": False, **options})
    assert contract is not None
    return contract


def pointers(faults: Any) -> list[str]:
    return [fault.pointer for fault in faults]


@pytest.mark.parametrize(
    ("nullable", "listable", "accepted", "refused"),
    [
        (False, False, [1], [None, "1", [1], "missing"]),
        (True, False, [1, None, "missing"], ["1", [1]]),
        (False, True, [[], [1, 2]], [None, 1, ["1"], [None], "missing"]),
        (True, True, [[], [1], None, "missing"], [1, ["1"], [None]]),
    ],
)
def test_a_field_is_shown_and_checked_alike(
    nullable: bool, listable: bool, accepted: list[Any], refused: list[Any]
) -> None:
    contract = made(PLAIN, fields=[NamedField("risk", {"type": "integer"}, nullable, listable)])
    shown = compile_schema(contract.request)
    for value in accepted + refused:
        answer = {"answer": 1} if value == "missing" else {"answer": 1, "risk": value}
        assert (contract.check(answer) == []) is (value in accepted)
        # The model is asked for all of them, so that it leaves none out by carelessness.
        assert shown.accepts(answer) is (value in accepted and value != "missing")
        assert compile_schema(contract.response).accepts(answer) is (value in accepted)


def test_faults_are_told_where_they_are() -> None:
    many = NamedField("m/n", {"properties": {"a": {"type": "string"}}}, listable=True)
    contract = made(PLAIN, fields=[RISK, many])
    answer = {"answer": "x", "risk": "y", "m/n": [{}, {"a": 1}]}
    assert sorted(pointers(contract.check(answer))) == ["/answer", "/m~1n/1/a", "/risk"]


@pytest.mark.parametrize(
    ("response_format", "options", "properties"),
    [
        (PLAIN, {}, ["answer", "risk"]),
        (PLAIN, {"reason": True}, ["reason", "answer", "risk"]),
        (None, {}, ["value", "risk"]),
        ({"type": "array"}, {}, ["value", "risk"]),
        (None, {"tools": [ADD]}, ["value", "risk", "action_required", "action_requests"]),
    ],
)
def test_fields_stand_beside_the_callers_and_ours(
    response_format: Any, options: dict[str, Any], properties: list[str]
) -> None:
    request = made(response_format, **options).request
    assert list(request["properties"]) == properties
    compile_schema(request)


def test_a_text_with_a_field_is_an_object() -> None:
    answer = {"value": "low", "risk": 1}
    assert made().check(answer) == []
    assert made().result(answer) == answer


@pytest.mark.parametrize(
    ("response_format", "names", "options", "taken"),
    [
        (PLAIN, ["answer"], {}, [0]),
        (PLAIN, ["a", "b", "a"], {}, [2]),
        (PLAIN, ["reason"], {"reason": True}, [0]),
        (PLAIN, ["reason"], {}, []),
        (PLAIN, ["action_requests", "action_responses"], {"tools": [ADD]}, [0, 1]),
        (PLAIN, ["action_responses"], {"actions": True}, [0]),
        (PLAIN, ["action_responses"], {}, []),
        (PLAIN, ["value"], {}, []),
        (None, ["value"], {}, [0]),
        ({"type": "array"}, ["x", "value"], {}, [1]),
    ],
)
def test_names_that_are_taken(response_format: Any, names: list[str], options: Any, taken: list[int]) -> None:
    fields = [NamedField(name, {}) for name in names]
    if not taken:
        made(response_format, fields=fields, **options)
        return
    with pytest.raises(FieldConflict) as refused:
        made(response_format, fields=fields, **options)
    assert pointers(refused.value.errors) == [f"/field_models/{index}/name" for index in taken]
    assert refused.value.code == "field_conflict"


def test_a_name_of_ours_among_response_fields_is_refused_in_its_place() -> None:
    with pytest.raises(FieldConflict) as refused:
        made(schema_of_fields({"a": 1, "reason": "x"}), reason=True, loose=True)
    assert pointers(refused.value.errors) == ["/response_fields/reason"]


LOOSE = made(schema_of_fields({"a": 1}), loose=True, fields=())


@pytest.mark.parametrize("answer", [{}, {"a": "x", "b": None}, {"a": [1]}])
def test_an_object_is_all_that_a_loose_format_asks_for(answer: Any) -> None:
    assert LOOSE.check(answer) == []
    assert LOOSE.result(answer) == answer


@pytest.mark.parametrize("answer", [[], "x", None, 1])
def test_what_is_no_object_is_refused(answer: Any) -> None:
    assert pointers(LOOSE.check(answer)) == [""]


@pytest.mark.parametrize("answer", [{"a": "x"}, {"a": 1, "risk": "high"}])
def test_further_fields_of_a_loose_format_are_checked(answer: Any) -> None:
    assert made(schema_of_fields({"a": 1}), loose=True).check(answer)


@pytest.mark.parametrize(
    ("example", "shown"),
    [
        ("string", {"type": "string"}),
        ("int", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("list", {"type": "array"}),
        ("dict", {"type": "object"}),
        ("Ada", {"type": "string", "examples": ["Ada"]}),
        (3, {"type": "integer", "examples": [3]}),
        (0.5, {"type": "number", "examples": [0.5]}),
        (True, {"type": "boolean", "examples": [True]}),
        (None, {}),
        ([], {"type": "array"}),
        (["int"], {"type": "array", "items": {"type": "integer"}}),
        ({}, {"type": "object"}),
        ({"a": "int"}, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
    ],
)
def test_an_example_shows_its_type(example: Any, shown: Any) -> None:
    assert schema_of_fields({"x": example})["properties"]["x"] == shown


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
examples = st.recursive(
    # No word that names a type, and one member of a list, which stands for all of them.
    scalars | st.text(max_size=5).map("a {}".format),
    lambda inner: st.lists(inner, max_size=1) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), examples, min_size=1, max_size=4))
def test_an_example_is_like_itself(fields: dict[str, Any]) -> None:
    assert compile_schema(schema_of_fields(fields)).check(fields) == []


def test_an_answer_may_have_its_calls_follow_each_other() -> None:
    strategy = {"enum": ["concurrent", "sequential"]}
    declared = {"type": "object", "properties": {"action_strategy": strategy}}
    sequential = {"action_strategy": "sequential"}
    assert made(declared, tools=[ADD], fields=()).wants_one_by_one(sequential)
    assert made(PLAIN, tools=[ADD], fields=[NamedField("action_strategy", strategy)]).wants_one_by_one(
        sequential
    )
    assert not made(declared, tools=[ADD], fields=()).wants_one_by_one({"action_strategy": "concurrent"})
    assert not made(PLAIN, tools=[ADD]).wants_one_by_one(sequential), "nobody asked for it"
    assert not made({"anyOf": [declared]}, tools=[ADD], fields=()).wants_one_by_one({"value": sequential})
