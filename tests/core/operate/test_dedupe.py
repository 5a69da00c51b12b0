"""Calls that ask for the same, carried out once and answered each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.action.normalize import ActionCall, proposed
from app.core.operate.dedupe import collapsed, one_by_one


def call(function: str, arguments: Any = None, id: str | None = None) -> ActionCall:
    return proposed({"function": function, "arguments": arguments}, provider_call_id=id)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (call("f", {"a": 1, "b": 2}), call("f", {"b": 2, "a": 1}), True),
        (call("f", {}, "c1"), call("f", {}, "c2"), True),
        (call("f", None), call("f", ""), True),
        (call("f", {}), call("f", None), True),
        (call("f", {"a": 1}), call("g", {"a": 1}), False),
        (call("f", {"a": 1}), call("f", {"a": 1.0}), False),
        (call("f", {"a": 1}), call("f", {"a": True}), False),
        (call("f", {"a": [1, 2]}), call("f", {"a": [2, 1]}), False),
        (call("f", "{}"), call("f", {}), False),
        (call("f", [1]), call("f", [1]), True),
    ],
)
def test_what_is_the_same(one: ActionCall, other: ActionCall, same: bool) -> None:
    batched = collapsed([one, other])
    assert batched.calls == ((one,) if same else (one, other))
    assert batched.slots == ((0, 0) if same else (0, 1))


calls = st.lists(
    st.builds(call, st.sampled_from("fg"), st.fixed_dictionaries({"a": st.integers(0, 2)})), max_size=12
)


@given(calls)
def test_each_is_answered_by_a_call_like_it(asked: list[ActionCall]) -> None:
    batched = collapsed(asked)
    assert len(set(batched.calls and [(c.function, c.digest) for c in batched.calls])) == len(batched.calls)
    answered = batched.spread(batched.calls)
    assert [(c.function, c.arguments) for c in answered] == [(c.function, c.arguments) for c in asked]
    assert list(batched.calls) == sorted(batched.calls, key=asked.index), "in the order of the first of each"


@given(calls)
def test_without_it_each_is_carried_out(asked: list[ActionCall]) -> None:
    assert one_by_one(asked).calls == tuple(asked)
    assert one_by_one(asked).spread(asked) == asked
