"""Which fragment belongs to which call, for every way in which servers say it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.chat_completions.tool_calls import Extent, ToolCalls
from tests.support.answers import Answer


def entry(name: Any = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**more, "function": function}


def joined(*events: Any) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls in these events."""
    calls, answer = ToolCalls(), Answer()
    for event in events:
        answer.take(calls.deltas(event))
    assert list(answer.calls) == list(range(len(answer.calls)))
    return [(call.id, call.name, call.arguments) for call in answer.calls.values()]


A, B = '{"a": 1}', '{"b": 2}'


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        pytest.param(
            [
                [entry("f", "", index=0, id="x")],
                [entry(None, A[:4], index=0)],
                [entry(None, A[4:], index=0)],
                [entry("g", "", index=1, id="y")],
                [entry(None, B, index=1)],
            ],
            [("x", "f", A), ("y", "g", B)],
            id="as it should be",
        ),
        pytest.param(
            [
                [entry("f", "", index=0, id="x"), entry("g", "", index=1, id="y")],
                [entry(None, A, index=0), entry(None, B[:3], index=1)],
                [entry(None, B[3:], index=1)],
            ],
            [("x", "f", A), ("y", "g", B)],
            id="in turn",
        ),
        pytest.param([[entry("f", A, index=1, id="x")]], [("x", "f", A)], id="numbered from one"),
        pytest.param(
            [[entry("f", "", index=0, id="x"), entry(None, A[:2], index=0)], [entry(None, A[2:], index=0)]],
            [("x", "f", A)],
            id="one index twice in an event",
        ),
        pytest.param(
            [
                [entry("f", "{", index=0, id="x")],
                [entry("f", '"a": ', index=0, id="x")],
                [entry("", "1}", index=0)],
            ],
            [("x", "f", A)],
            id="name repeated, then empty",
        ),
        pytest.param(
            [[entry("f", "{", index=0)], [entry("f", '"a": ', index=0)], [entry("f", "1}", index=0)]],
            [("", "f", A)],
            id="name repeated without an id",
        ),
        pytest.param([[entry("f", A, id="x")]], [("x", "f", A)], id="no index"),
        pytest.param(
            [
                [entry("f", "", id="x")],
                [entry("g", "", id="y")],
                [entry(None, A, id="x")],
                [entry(None, B, id="y")],
            ],
            [("x", "f", A), ("y", "g", B)],
            id="no index, told apart by id",
        ),
        pytest.param(
            [[entry("f", A[:3], id="x")], [entry(None, A[3:])]],
            [("x", "f", A)],
            id="id in the first fragment alone",
        ),
        pytest.param([[entry("f", A), entry("g")]], [("", "f", A), ("", "g", "")], id="neither index nor id"),
        pytest.param(
            [[entry("f", "{")], [entry(None, '"a": 1}')], [entry("g", "{")], [entry(None, '"b": 2}')]],
            [("", "f", A), ("", "g", B)],
            id="neither, one call after the other",
        ),
        pytest.param(
            [[entry("f", A)], [entry("f", B)]],
            [("", "f", A), ("", "f", B)],
            id="neither, the same function twice",
        ),
        pytest.param(
            [[entry("f", "{"), entry("g", "{")], [entry(None, '"a": 1}'), entry(None, '"b": 2}')]],
            [("", "f", A), ("", "g", B)],
            id="neither, in turn by position",
        ),
        pytest.param(
            [[entry("f", A, index=0, id="x")], [entry("f", B, index=0, id="y")]],
            [("x", "f", A), ("y", "f", B)],
            id="every call has index 0",
        ),
        pytest.param(
            [
                [entry("f", "", index=0, id="x")],
                [entry(None, A, index=0)],
                [entry("f", "", index=0, id="y")],
                [entry(None, B, index=0)],
            ],
            [("x", "f", A), ("y", "f", B)],
            id="every call has index 0, in fragments",
        ),
        pytest.param(
            [[entry("f", "", index=0, id="x"), entry("g", "", index=0, id="y")]],
            [("x", "f", ""), ("y", "g", "")],
            id="every call has index 0 and no arguments",
        ),
        pytest.param(
            [
                [entry("f", "", index=0, id="r1")],
                [entry(None, A[:5], index=0, id="r2")],
                [entry("", A[5:], index=0)],
            ],
            [("r1", "f", A)],
            id="a new id with every fragment",
        ),
        pytest.param(
            [[entry("f", "", id="r1")], [entry(None, A[:5], id="r2")], [entry(None, A[5:], id="r3")]],
            [("r1", "f", A)],
            id="a new id with every fragment and no index",
        ),
        pytest.param(
            [[entry("f", A, index=0, id="f")], [entry("f", B, index=1, id="f")]],
            [("f", "f", A), ("f", "f", B)],
            id="the name as id of each call",
        ),
        pytest.param([[entry("f", {"a": 1})]], [("", "f", '{"a":1}')], id="arguments as an object"),
        pytest.param([{"index": 0, "name": "f", "arguments": A}], [("", "f", A)], id="no function, no list"),
        pytest.param([[entry("f", A, index="0", id=12)]], [("12", "f", A)], id="index as text, id as number"),
        pytest.param([[entry(None, A)]], [("", "", A)], id="no name at all"),
        pytest.param([None, "x", [1, None], [{}]], [("", "", "")], id="not even objects"),
    ],
)
def test_fragments_are_joined(events: list[Any], calls: list[tuple[str, str, str]]) -> None:
    assert joined(*events) == calls


def test_a_long_integer_in_an_object_keeps_its_digits() -> None:
    assert joined([entry("f", {"n": 12345678901234567890123})]) == [
        ("", "f", '{"n":12345678901234567890123}')
    ]


def test_whole_calls_are_numbered_with_the_others() -> None:
    calls = ToolCalls()
    indexes = [calls.whole("f", A).index, calls.deltas([entry("g", B)])[0].index, calls.whole("f", A).index]
    assert indexes == [0, 1, 2]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\{}[]\n🦦'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab"\\{}[]'), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text('ab"\\{}'), json_values, max_size=4), st.data())
def test_the_end_of_an_object_is_found_at_its_last_character(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    extent = Extent()
    at = 0
    while at < len(text):
        assert not extent.complete
        step = data.draw(st.integers(1, 7))
        extent.add(text[at : at + step])
        at += step
    assert extent.complete
