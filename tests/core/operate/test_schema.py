"""What a model is asked for, what is accepted, and what the result looks like."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.json_schema import InvalidSchema, compile_schema
from app.core.operate.asking import ask_for
from app.core.operate.own_fields import MAX_TOOLS_SPELT_OUT
from app.core.operate.params import OperateParams
from app.core.operate.schema import FieldConflict, contract_for, enrich
from app.core.prompt import ToolSchema

ADD = ToolSchema(
    "add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
NOW = ToolSchema("now", "Tells the time.", {"type": "object"})
ANSWER = {
    "title": "Ans",
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
REASON = {"title": "t", "content": "c", "confidence_score": 0.5}
RESPONSE = {
    "function": "add",
    "arguments": {},
    "output": 3,
    "error": None,
    "call_id": "1",
    "status": "completed",
}


def made(response_format: Any = None, *, reason: bool = False, tools: Any = ()) -> Any:
    contract = contract_for(response_format, reason=reason, tools=tools)
    assert contract is not None
    return contract


def pointers(faults: Any) -> list[str]:
    return [fault.pointer for fault in faults]


def test_a_plain_text_needs_no_contract() -> None:
    assert contract_for(None, reason=False) is None


@pytest.mark.parametrize(
    ("response_format", "reason", "tools", "properties", "required"),
    [
        (ANSWER, False, [], ["answer"], ["answer"]),
        (ANSWER, True, [], ["reason", "answer"], ["reason", "answer"]),
        (
            ANSWER,
            False,
            [ADD],
            ["answer", "action_required", "action_requests"],
            ["action_required", "action_requests", "answer"],
        ),
        ({"type": "array"}, True, [], ["reason", "value"], ["reason", "value"]),
        ({"enum": [1, 2]}, False, [ADD], ["value", "action_required", "action_requests"], None),
        ({"anyOf": [ANSWER]}, True, [], ["reason", "value"], ["reason", "value"]),
        ({**ANSWER, "maxProperties": 1}, True, [], ["reason", "value"], ["reason", "value"]),
        (None, True, [], ["reason", "value"], ["reason"]),
        (
            None,
            False,
            [ADD],
            ["value", "action_required", "action_requests"],
            ["action_required", "action_requests"],
        ),
    ],
)
def test_the_request_schema_holds_our_fields_around_the_callers(
    response_format: Any, reason: bool, tools: Any, properties: list[str], required: list[str] | None
) -> None:
    request = made(response_format, reason=reason, tools=tools).request
    assert request["type"] == "object"
    assert list(request["properties"]) == properties
    if required is not None:
        assert request["required"] == required
    assert "action_responses" not in str(request), "no model is asked for what tools answered"
    compile_schema(request)


def test_the_titles_tell_request_from_response() -> None:
    contract = made(ANSWER, tools=[ADD])
    assert contract.request["title"] == "AnsRequest"
    assert contract.response["title"] == "AnsResponse"
    assert made(reason=True).request["title"] == "OperativeRequest"
    assert made({"type": "array"}).request == {"type": "array", "title": "OperativeRequest"}


def test_the_request_names_the_tools_on_offer_and_their_arguments() -> None:
    request = compile_schema(made(tools=[ADD, NOW]).request)

    def asks(function: str, arguments: Any) -> bool:
        call = {"function": function, "arguments": arguments}
        return request.accepts({"action_required": True, "action_requests": [call]})

    assert asks("add", {"a": 1})
    assert asks("now", {})
    assert not asks("add", {"a": "1"})
    assert not asks("add", {})
    assert not asks("boom", {})


@pytest.mark.parametrize(
    "tools",
    [
        [ADD, ToolSchema("big", "", {"type": "object", "description": "x" * MAX_TOOLS_SPELT_OUT})],
        [ADD, ToolSchema("tree", "", {"type": "object", "properties": {"t": {"$ref": "#"}}})],
    ],
    ids=["large", "with references"],
)
def test_arguments_that_cannot_be_spelt_out_are_any_object(tools: list[ToolSchema]) -> None:
    contract = made(tools=tools)
    item = contract.request["properties"]["action_requests"]["items"]
    assert item["properties"]["function"]["enum"] == [tool.name for tool in tools]
    assert item["properties"]["arguments"] == {"type": "object"}
    compile_schema(contract.request)


def test_definitions_and_references_survive_the_wrapping() -> None:
    tree = {
        "$defs": {"leaf": {"type": "integer"}},
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#"}, {"const": {"$ref": "#"}}]},
    }
    contract = made(tree, reason=True)
    request = compile_schema(contract.request)
    assert request.accepts({"reason": REASON, "value": [1, [2, []], {"$ref": "#"}]})
    assert not request.accepts({"reason": REASON, "value": [1, ["x"]]})
    assert contract.check({"reason": REASON, "value": [1, [2, []]]}) == []
    assert pointers(contract.check({"reason": REASON, "value": [1, ["x"]]})) == ["/value/1"]


@pytest.mark.parametrize(
    ("contract", "value", "faults"),
    [
        (made(ANSWER), {"answer": 1}, []),
        (made(ANSWER), {"answer": "1", "x": 1}, ["/answer", ""]),
        (made(ANSWER), [1], [""]),
        (made({"type": "array", "items": {"type": "integer"}}), [1, "x"], ["/1"]),
        (made(ANSWER, reason=True), {"answer": 1, "reason": REASON}, []),
        (made(ANSWER, reason=True), {"answer": 1}, []),
        (made(ANSWER, reason=True), {"answer": 1, "reason": None}, []),
        (made(ANSWER, reason=True), {"answer": 1, "reason": {"title": 3}}, ["/reason/title"]),
        (made(ANSWER, reason=True), {"answer": 1, "action_requests": []}, [""]),
        (made(ANSWER, reason=True), "text", [""]),
        (made(ANSWER, tools=[ADD]), {"answer": 1, "action_requests": None}, []),
        (
            made(ANSWER, tools=[ADD]),
            {"answer": 1, "action_requests": {"function": "add"}},
            ["/action_requests"],
        ),
        (made(ANSWER, tools=[ADD]), {"answer": 1, "action_requests": [{}]}, ["/action_requests/0"]),
        (made(ANSWER, tools=[ADD]), {"action_requests": [{"function": "boom"}]}, [""]),
        (
            made(ANSWER, tools=[ADD]),
            {"answer": 1, "action_requests": [{"function": "boom", "arguments": [1]}]},
            [],
        ),
        (made({"type": "integer"}, tools=[ADD]), {"value": 1}, []),
        (made({"type": "integer"}, tools=[ADD]), {"value": "1"}, ["/value"]),
        (made({"type": "integer"}, tools=[ADD]), {}, [""]),
        (made({"type": "integer"}, tools=[ADD]), {"value": 1, "x/y": 2}, ["/x~1y"]),
        (made(tools=[ADD]), {"value": "text"}, []),
        (made(tools=[ADD]), {"value": None}, []),
        (made(tools=[ADD]), {"value": 3}, ["/value"]),
        (made(tools=[ADD]), {}, []),
    ],
)
def test_an_answer_is_held_against_its_contract(contract: Any, value: Any, faults: list[str]) -> None:
    assert sorted(pointers(contract.check(value))) == sorted(faults)


def test_the_response_schema_describes_the_result() -> None:
    contract = made(ANSWER, reason=True, tools=[ADD])
    answer = {"reason": REASON, "answer": 1, "action_requests": [{"function": "add", "arguments": {}}]}
    result = contract.result(answer, [RESPONSE])
    assert result == {**answer, "action_responses": [RESPONSE]}
    assert compile_schema(contract.response).check(result) == []
    assert compile_schema(contract.response).check({"answer": 1, "action_responses": [{}]})


def test_made_up_action_responses_are_dropped() -> None:
    fake = {"answer": 1, "action_requests": [], "action_responses": [RESPONSE]}
    assert made(ANSWER, tools=[ADD]).without_made_up(fake) == {"answer": 1, "action_requests": []}
    theirs = {"type": "object", "properties": {"action_responses": {}}}
    assert made(theirs).without_made_up(fake) is fake, "without actions the name is the caller's"


def test_action_requests_are_read_only_where_actions_are_on() -> None:
    call = {"function": "add", "arguments": {}}
    contract = made(ANSWER, tools=[ADD])
    assert contract.action_requests({"answer": 1, "action_requests": [call]}) == [call]
    for value in ({"answer": 1}, {"action_requests": None}, {"action_requests": call}, "text", [call], None):
        assert contract.action_requests(value) is None
    assert made(ANSWER).action_requests({"answer": 1, "action_requests": [call]}) is None


def test_a_text_answer_does_not_depend_on_how_tools_were_offered() -> None:
    contract = made(tools=[ADD])
    asked = [{"function": "add", "arguments": {}}]
    assert contract.result({"value": "hello", "action_required": False, "action_requests": []}) == "hello"
    assert enrich("hello", []) == "hello"
    in_prompt = contract.result({"value": "hello", "action_requests": asked}, [RESPONSE])
    natively = enrich("hello", [RESPONSE], action_requests=asked)
    assert (
        in_prompt == natively == {"value": "hello", "action_requests": asked, "action_responses": [RESPONSE]}
    )
    reasoned = {"value": "hello", "reason": REASON}
    assert made(reason=True, tools=[ADD]).result(reasoned) == reasoned


def test_enriching_leaves_the_answer_as_it_is() -> None:
    answer = {"answer": 1}
    assert enrich(answer, []) is answer
    assert enrich(answer, [RESPONSE]) == {"answer": 1, "action_responses": [RESPONSE]}
    assert answer == {"answer": 1}


@pytest.mark.parametrize(
    ("name", "reason", "tools", "taken"),
    [
        ("reason", True, [], True),
        ("reason", False, [ADD], False),
        ("action_required", False, [ADD], True),
        ("action_requests", False, [ADD], True),
        ("action_responses", False, [ADD], True),
        ("action_responses", True, [], False),
        ("value", True, [ADD], False),
    ],
)
def test_a_property_with_a_name_of_ours_is_refused(name: str, reason: bool, tools: Any, taken: bool) -> None:
    schema = {"type": "object", "properties": {name: {}}}
    if not taken:
        contract_for(schema, reason=reason, tools=tools)
        return
    with pytest.raises(FieldConflict) as refused:
        contract_for(schema, reason=reason, tools=tools)
    assert pointers(refused.value.errors) == [f"/response_format/properties/{name}"]
    assert refused.value.code == "field_conflict"


def test_a_schema_that_is_none_is_refused_in_its_place() -> None:
    with pytest.raises(InvalidSchema) as refused:
        contract_for({"type": "x"}, reason=False)
    assert pointers(refused.value.errors) == ["/response_format/type"]


BOTH = {"takes_tools": True, "takes_schema": True}
NEITHER = {"takes_tools": False, "takes_schema": False}


def params(**options: Any) -> OperateParams:
    return OperateParams(instruction="hi", chat_model="m", **options)


@pytest.mark.parametrize(
    ("options", "endpoint", "ways"),
    [
        ({}, BOTH, ""),
        ({"actions": True}, BOTH, "native_tools"),
        ({"actions": True}, NEITHER, "contract shown_schema shown_tools"),
        (
            {"actions": True},
            {"takes_tools": False, "takes_schema": True},
            "contract native_schema shown_tools",
        ),
        ({"actions": True, "reason": True}, BOTH, "contract native_schema shown_tools"),
        ({"actions": True, "response_format": ANSWER}, NEITHER, "contract shown_schema shown_tools"),
        ({"response_format": ANSWER}, BOTH, "contract native_schema"),
        ({"response_format": ANSWER}, NEITHER, "contract shown_schema"),
        ({"response_format": {"type": "array"}}, BOTH, "contract shown_schema"),
        ({"response_format": {"type": "array"}, "reason": True}, BOTH, "contract native_schema"),
        ({"reason": True}, BOTH, "contract native_schema"),
    ],
)
def test_what_the_endpoint_takes_decides_how_it_is_asked(options: Any, endpoint: Any, ways: str) -> None:
    asking = ask_for(params(**options), [ADD], **endpoint)
    names = ("contract", "native_tools", "native_schema", "shown_schema", "shown_tools")
    assert " ".join(name for name in names if getattr(asking, name)) == ways
    assert asking.offered == ({"add"} if options.get("actions") else set())


def test_actions_without_a_tool_ask_for_nothing() -> None:
    assert ask_for(params(actions=True), [], **NEITHER).contract is None
