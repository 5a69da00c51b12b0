"""From a request and its branch to parameters: who decides what, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.errors import AppError, Invalid, UnsupportedOption
from app.core.json_schema import InvalidSchema
from app.core.operate.field_models import NamedField
from app.core.operate.params import (
    Batch,
    BranchSettings,
    OperateParams,
    offered_tools,
    resolve,
    resolve_act,
)
from app.core.operate.request import MAX_ACTIONS, REMOVED, ActRequest, OperateRequest

BRANCH = BranchSettings(chat_model="m")


def resolved(branch: BranchSettings = BRANCH, **body: Any) -> OperateParams:
    return resolve(OperateRequest.model_validate({"instruction": "hi", **body}), branch)


def refusal(body: dict[str, Any], branch: BranchSettings = BRANCH) -> AppError:
    with pytest.raises(AppError) as refused:
        resolve(OperateRequest.model_validate(body), branch)
    return refused.value


def pointers(error: AppError) -> list[str]:
    return [fault.pointer for fault in error.errors]


def test_a_bare_instruction_gets_the_defaults() -> None:
    assert resolved() == OperateParams(instruction="hi", chat_model="m")


@pytest.mark.parametrize("instruct", [True, False])
def test_an_instruction_may_be_loose_or_not(instruct: bool) -> None:
    said = {"instruction": {"task": 1}, "guidance": ["g"], "context": 3}
    body = {"instruct": said} if instruct else said
    params = resolve(OperateRequest.model_validate(body), BRANCH)
    assert (params.instruction, params.guidance, params.context) == ({"task": 1}, ["g"], 3)


def test_each_fills_the_gaps_of_the_other() -> None:
    params = resolved(guidance="g", instruct={"context": "c", "guidance": "g", "instruction": None})
    assert (params.instruction, params.guidance, params.context) == ("hi", "g", "c")


@pytest.mark.parametrize(
    ("loose", "instruct", "chosen"),
    [
        ({}, {}, (False, False, "concurrent")),
        ({}, {"reason": True, "actions": True, "action_strategy": "sequential"}, (True, True, "sequential")),
        (
            {"reason": False, "actions": False, "action_strategy": "concurrent"},
            {"reason": True, "actions": True, "action_strategy": "sequential"},
            (False, False, "concurrent"),
        ),
        (
            {"reason": None, "action_strategy": None},
            {"action_strategy": "sequential"},
            (False, False, "sequential"),
        ),
        ({"reason": True, "actions": True}, {"reason": False}, (True, True, "concurrent")),
    ],
)
def test_the_request_decides_before_its_instruct(
    loose: dict[str, Any], instruct: dict[str, Any], chosen: tuple[bool, bool, str]
) -> None:
    params = resolved(instruct=instruct, **loose)
    assert (params.reason, params.actions, params.batch.strategy) == chosen


def test_the_model_is_the_requests_else_the_branchs() -> None:
    assert resolved().chat_model == "m"
    assert resolved(chat_model="n").chat_model == "n"
    assert pointers(refusal({"instruction": "hi"}, BranchSettings())) == ["/chat_model"]


def test_everything_else_is_carried_over() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    params = resolved(
        actions=True,
        tools=["add"],
        model_options={"temperature": 0},
        response_format=schema,
        handle_validation="raise",
        validate=False,
        skip_validation=True,
        suppress_errors=False,
        verbose_action=True,
        images=["https://example.org/a.png", "data:image/png;base64,AA=="],
        if_busy="reject",
        field_models=[{"name": "risk", "schema": {"type": "string"}, "nullable": True}],
        dedupe_actions=True,
        image_detail="low",
        sender="ann",
        recipient="bob",
        progression=["x"],
        include_token_usage_to_model=True,
        call_params={"max_concurrent": 2, "retry_timeout": 1.5, "output_dropna": False},
        lifecycle={"timeout": None},
    )
    assert params == OperateParams(
        instruction="hi",
        chat_model="m",
        images=("https://example.org/a.png", "data:image/png;base64,AA=="),
        model_options={"temperature": 0},
        response_format=schema,
        handle_validation="raise",
        validate=False,
        skip_validation=True,
        actions=True,
        tools=("add",),
        batch=Batch("concurrent", 2, 1.5, suppress_errors=False, verbose=True),
        if_busy="reject",
        fields=(NamedField("risk", {"type": "string"}, nullable=True),),
        dedupe_actions=True,
        image_detail="low",
        sender="ann",
        recipient="bob",
        progression=("x",),
        include_token_usage_to_model=True,
    )


def test_no_actions_without_invoking_them() -> None:
    assert resolved(actions=True).actions
    assert not resolved(actions=True, invoke_actions=False).actions


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, ["/instruction"]),
        ({"guidance": "g"}, ["/instruction"]),
        ({"instruction": None, "instruct": {"guidance": "g"}}, ["/instruction"]),
        ({"instruction": " \n"}, ["/instruction"]),
        ({"instruction": "a", "instruct": {"instruction": "b"}}, ["/instruction"]),
        (
            {"instruction": "a", "guidance": 1, "context": 2, "instruct": {"guidance": 2, "context": 3}},
            ["/guidance", "/context"],
        ),
        (
            {"instruction": "a", "images": ["https://x", "file:///etc/passwd", "x"]},
            ["/images/1", "/images/2"],
        ),
        ({"instruction": "a", "response_fields": {"a": 1}, "response_format": {}}, ["/response_fields"]),
        ({"instruction": "a", "tool_schemas": [{"name": "x"}], "actions": True}, ["/tool_schemas"]),
        ({"instruction": "a", "tool_schemas": [{}], "instruct": {"actions": True}}, ["/tool_schemas"]),
        ({"instruction": "a", "clear_messages": True, "progression": []}, ["/progression"]),
    ],
)
def test_what_does_not_fit_together_is_refused(body: dict[str, Any], where: list[str]) -> None:
    error = refusal(body)
    assert isinstance(error, Invalid)
    assert pointers(error) == where


def test_a_response_format_is_checked_at_once() -> None:
    error = refusal({"instruction": "a", "response_format": {"properties": {"a": {"type": "x"}}}})
    assert isinstance(error, InvalidSchema)
    assert pointers(error) == ["/response_format/properties/a/type"]


@pytest.mark.parametrize("field", [{"type": "x"}, {"$ref": "#/$defs/gone"}, {"items": {"type": "x"}}])
def test_further_fields_are_checked_at_once(field: dict[str, Any]) -> None:
    fine = {"name": "fine", "schema": {}}
    error = refusal({"instruction": "a", "field_models": [fine, {"name": "risk", "schema": field}]})
    assert isinstance(error, InvalidSchema)
    assert pointers(error)[0].startswith("/field_models/1/schema")


def test_fields_stand_for_a_loose_format() -> None:
    params = resolved(response_fields={"title": "string", "pages": 320})
    assert params.loose
    assert params.response_format == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "pages": {"type": "integer", "examples": [320]}},
        "required": ["title", "pages"],
    }


def test_told_tools_are_carried_over_where_nothing_runs() -> None:
    told = [{"name": "x"}]
    assert resolved(tool_schemas=told).tool_schemas == ({"name": "x"},)
    assert resolved(tool_schemas=told, actions=True, invoke_actions=False).tool_schemas == ({"name": "x"},)
    assert resolved(tool_schemas=[], actions=True).tool_schemas == ()


UNSUPPORTED: list[tuple[str, Any]] = [
    ("/middle", "mine"),
]
HARMLESS: list[tuple[str, Any]] = [
    ("/parse_model", None),
    ("/field_models", []),
    ("/dedupe_actions", False),
    ("/image_detail", "auto"),
    ("/middle", "communicate"),
    ("/if_busy", "interrupt"),
    ("/if_busy", "rollback"),
    ("/middle", "run_and_collect"),
    ("/stream_persist", True),
    ("/call_params/retry_attempts", 3),
    ("/call_params/retry_initial_delay", 0.5),
    ("/call_params/retry_backoff", 2.0),
    ("/call_params/throttle_period", 0.1),
    ("/call_params/return_exceptions", True),
    ("/lifecycle/guardrails", "none"),
    ("/lifecycle/guardrails", None),
    ("/lifecycle/guardrails", []),
    ("/lifecycle/drift", False),
    ("/lifecycle/continue_from_last_good_token", False),
    ("/lifecycle/retry/should_retry", None),
    ("/lifecycle/check_intervals", {"drift": 5}),
]


def at(pointer: str, value: Any) -> dict[str, Any]:
    """A body that says only this."""
    for step in reversed(pointer.split("/")[1:]):
        value = {step: value}
    return {"instruction": "hi", **value}


@pytest.mark.parametrize(("pointer", "value"), UNSUPPORTED)
def test_what_this_version_does_not_do_is_refused_by_name(pointer: str, value: Any) -> None:
    error = refusal(at(pointer, value))
    assert isinstance(error, UnsupportedOption)
    assert pointers(error) == [pointer]
    assert pointer[1:].replace("/", ".") in error.detail


@pytest.mark.parametrize(("pointer", "value"), HARMLESS)
def test_what_asks_for_nothing_is_accepted(pointer: str, value: Any) -> None:
    resolve(OperateRequest.model_validate(at(pointer, value)), BRANCH)


@pytest.mark.parametrize(
    ("said", "middle"),
    [
        ({}, None),
        ({"middle": "communicate"}, "communicate"),
        ({"middle": "run_and_collect"}, "run_and_collect"),
        ({"stream_persist": True}, "run_and_collect"),
        ({"stream_persist": True, "middle": "run_and_collect"}, "run_and_collect"),
        ({"stream_persist": False, "middle": "communicate"}, "communicate"),
    ],
)
def test_persisting_asks_for_a_middle(said: dict[str, Any], middle: str | None) -> None:
    assert resolved(**said).middle == middle


def test_persisting_and_another_middle_contradict_each_other() -> None:
    error = refusal({"instruction": "a", "stream_persist": True, "middle": "communicate"})
    assert pointers(error) == ["/middle"]


@pytest.mark.parametrize("name", sorted(REMOVED))
@pytest.mark.parametrize("value", [None, "x", {}])
def test_removed_names_say_what_to_use_instead(name: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        OperateRequest.model_validate({"instruction": "a", name: value})
    (fault,) = refused.value.errors()
    assert fault["loc"] == (name,)
    assert REMOVED[name] in fault["msg"]


def test_the_documented_schema_names_what_can_be_sent_and_nothing_removed() -> None:
    documented = OperateRequest.model_json_schema()["properties"]
    assert not REMOVED.keys() & documented.keys()
    assert {"instruction", "validate", "lifecycle", "if_busy"} <= documented.keys()
    for model in (OperateRequest, ActRequest):
        for example in model.model_json_schema()["examples"]:
            model.model_validate(example)


@pytest.mark.parametrize(
    "body",
    [
        {"unknown": 1},
        {"reason": "true"},
        {"validate": 1},
        {"tools": [1]},
        {"tools": ""},
        {"images": "https://x"},
        {"model_options": []},
        {"response_format": True},
        {"handle_validation": "ignore"},
        {"action_strategy": "random"},
        {"if_busy": None},
        {"call_params": {"max_concurrent": 0}},
        {"instruct": {"extra": 1}},
        {"response_fields": {}},
        {"field_models": [{"name": "", "schema": {}}]},
        {"field_models": [{"name": "x"}]},
        {"field_models": [{"name": "x", "schema": "string"}]},
        {"field_models": ["x"]},
        {"tool_schemas": ["x"]},
        {"image_detail": "best"},
        {"sender": ""},
        {"recipient": "x" * 201},
        {"progression": "all"},
        {"clear_messages": None},
    ],
)
def test_bodies_are_taken_strictly(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OperateRequest.model_validate({"instruction": "a", **body})


@pytest.mark.parametrize(
    ("asked", "branch", "left"),
    [
        (None, True, True),
        (None, ("a", "b"), ("a", "b")),
        (True, ("a",), ("a",)),
        (True, False, False),
        (False, True, False),
        (["a"], True, ("a",)),
        (["b"], ("a", "b"), ("b",)),
        ([], True, ()),
        ([], False, ()),
    ],
)
def test_a_request_narrows_the_tools_of_its_branch(asked: Any, branch: Any, left: Any) -> None:
    assert resolved(BranchSettings("m", branch), tools=asked).tools == left


@pytest.mark.parametrize("branch", [("a",), False])
def test_a_request_adds_no_tools(branch: Any) -> None:
    error = refusal({"instruction": "hi", "tools": ["b"]}, BranchSettings("m", branch))
    assert pointers(error) == ["/tools/0"]


names = st.lists(st.sampled_from("abcdef"), unique=True)


@given(names, names)
def test_offered_tools_exist_and_keep_the_projects_order(choice: list[str], known: list[str]) -> None:
    offered = offered_tools(tuple(choice), known)
    assert offered == [name for name in known if name in choice]
    assert offered_tools(True, known) == known
    assert offered_tools(False, known) == []


def test_a_tool_that_does_not_exist_is_named() -> None:
    assert offered_tools(("a", "gone"), ["a"]) == ["a"]
    with pytest.raises(Invalid) as refused:
        offered_tools(("a", "gone"), ["a"], asked=True)
    assert pointers(refused.value) == ["/tools/1"]


def test_act_takes_its_calls_and_its_batch() -> None:
    body = {
        "requests": [{"function": "add", "arguments": {"a": 1}}, {"function": "add", "arguments": 7}],
        "strategy": "sequential",
        "suppress_errors": False,
        "call_params": {"max_concurrent": 3},
        "if_busy": "reject",
    }
    params = resolve_act(ActRequest.model_validate(body))
    assert [call.arguments for call in params.calls] == [{"a": 1}, None]
    assert params.batch == Batch("sequential", 3, None, suppress_errors=False)
    assert params.if_busy == "reject"


def test_act_refuses_what_it_cannot_do() -> None:
    call = {"function": "add", "arguments": {}}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"requests": [call] * (MAX_ACTIONS + 1)}, "/requests"),
        ({"requests": [call, {}]}, "/requests/1/function"),
    ]
    for body, pointer in cases:
        with pytest.raises(Invalid) as refused:
            resolve_act(ActRequest.model_validate(body))
        assert pointers(refused.value) == [pointer]
    assert (
        len(resolve_act(ActRequest.model_validate({"requests": [call] * MAX_ACTIONS})).calls) == MAX_ACTIONS
    )
