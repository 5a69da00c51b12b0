"""From what was sent as a tool call to one call that every phase sees alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.action.normalize import (
    INVALID_ARGUMENTS,
    TOOL_NOT_FOUND,
    ActionCall,
    CallError,
    accept,
    argument_faults,
    check_arguments,
    digest,
    find_tool,
    proposed,
)
from app.core.errors import Invalid
from app.core.json_schema import SchemaError

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 9}},
    "required": ["a"],
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("arguments", "normalized"),
    [
        ({"a": 1}, {"a": 1}),
        ({}, {}),
        (None, {}),
        ("", {}),
        (["/"], None),
        ('{"path":"/"}', None),
        ("{}", None),
        (" ", None),
        (7, None),
        (0, None),
        (False, None),
        ([], None),
    ],
)
def test_arguments_are_an_object_or_an_error(arguments: Any, normalized: dict[str, Any] | None) -> None:
    (call,) = accept({"function": "rm", "arguments": arguments})
    assert call.raw_arguments == arguments
    assert call.arguments == normalized
    assert proposed({"function": "rm", "arguments": arguments}) == call
    if normalized is None:
        assert call.error is not None
        assert call.error.type == INVALID_ARGUMENTS
    else:
        assert call.error is None


def test_a_list_of_envelopes_keeps_its_order() -> None:
    calls = accept([{"function": name, "arguments": {"n": n}} for n, name in enumerate("abc")])
    assert [(call.function, call.arguments) for call in calls] == [
        ("a", {"n": 0}),
        ("b", {"n": 1}),
        ("c", {"n": 2}),
    ]
    assert accept([]) == []


@pytest.mark.parametrize(
    ("requests", "pointers"),
    [
        ("add", ["/requests"]),
        (None, ["/requests"]),
        ([3], ["/requests/0"]),
        ({"function": "add"}, ["/requests/arguments"]),
        ([{"arguments": {}}], ["/requests/0/function"]),
        ([{"function": "", "arguments": {}}], ["/requests/0/function"]),
        ([{"function": 7, "arguments": {}}], ["/requests/0/function"]),
        (
            [{"function": "a", "arguments": {}}, "x", {"function": "a", "arguments": 1, "n/m": 2}],
            ["/requests/1", "/requests/2/n~1m"],
        ),
    ],
)
def test_what_is_no_envelope_is_refused_with_its_index(requests: Any, pointers: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        accept(requests)
    assert [fault.pointer for fault in refused.value.errors] == pointers


@given(json_values)
def test_whatever_a_model_proposes_becomes_a_call(request: Any) -> None:
    call = proposed(request, provider_call_id="c1")
    assert call.provider_call_id == "c1"
    assert (call.arguments is None) == (call.error is not None)


def test_a_model_may_leave_arguments_out_but_not_the_name() -> None:
    assert proposed({"function": "now"}).arguments == {}
    nameless: list[Any] = [{}, {"function": ""}, {"function": None, "arguments": {}}, "now", None]
    for request in nameless:
        error = proposed(request).error
        assert error is not None
        assert error.type == TOOL_NOT_FOUND


def test_a_tool_that_is_not_offered_is_not_found() -> None:
    call = proposed({"function": "boom", "arguments": {}})
    refused = find_tool(call, {"add"})
    assert refused.error is not None
    assert (refused.error.type, refused.arguments) == (TOOL_NOT_FOUND, None)
    assert "'boom'" in refused.error.message
    assert find_tool(call, {"boom"}) is call
    broken = proposed({"function": "boom", "arguments": 7})
    assert find_tool(broken, {"add"}).error == CallError(
        INVALID_ARGUMENTS, "arguments must be an object, not a number"
    )


@pytest.mark.parametrize(
    ("arguments", "strict", "pointers"),
    [
        ({"a": 1}, False, []),
        ({"a": 1, "b": 2}, False, []),
        ({"a": 1, "extra": 2}, False, []),
        ({}, False, [""]),
        ({"a": "1", "b": None}, False, ["/a", "/b"]),
        ({"a": 1, "b": 2}, True, []),
        ({"a": 1}, True, [""]),
        ({"a": 1, "b": 2, "x/y": 3}, True, ["/x~1y"]),
        ({"a": "1", "b": 2}, True, ["/a"]),
    ],
)
def test_arguments_are_held_against_the_schema(
    arguments: dict[str, Any], strict: bool, pointers: list[str]
) -> None:
    assert [fault.pointer for fault in argument_faults(arguments, ADD, strict=strict)] == pointers
    call = check_arguments(ActionCall("add", arguments, arguments), ADD, strict=strict)
    if pointers:
        assert call.arguments is None
        assert call.error is not None
        assert call.error.type == INVALID_ARGUMENTS
        assert all((pointer or "(arguments)") in call.error.message for pointer in pointers)
    else:
        assert call.error is None
        assert call.arguments == arguments, "defaults are the tool's own to apply"


def test_a_tool_without_a_schema_takes_any_object() -> None:
    assert argument_faults({"x": 1}, {}) == []
    assert argument_faults({"x": 1}, {}, strict=True) == [
        SchemaError("/x", "is not one of the tool's arguments")
    ]


def test_a_call_that_is_already_refused_stays_so() -> None:
    call = proposed({"function": "add", "arguments": 7})
    assert check_arguments(call, ADD) is call


@given(st.dictionaries(st.text(max_size=3), json_values, min_size=1))
def test_the_digest_is_of_the_value_and_of_nothing_else(arguments: dict[str, Any]) -> None:
    other = dict(reversed(arguments.items()))
    assert digest(arguments) == digest(other)
    assert digest(arguments) != digest({**arguments, "x" * 9: 1})
    assert len(digest(arguments)) == 64


def test_the_digest_tells_great_integers_apart() -> None:
    assert digest({"n": 2**64}) != digest({"n": 2**64 + 1})
    assert digest({"n": 10**30}) != digest({"n": 10**30 + 1})
    assert proposed({"function": "f", "arguments": 7}).digest == digest(7)
    assert proposed({"function": "f", "arguments": None}).digest == digest({})
