"""JSON merge patches: the cases of RFC 7396, appendix A, and what they have in common."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import Invalid
from app.core.merge_patch import merge_patch
from app.core.metadata import merged_metadata

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_cases_of_the_standard(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


@given(VALUES, VALUES)
def test_a_patch_applied_twice_changes_nothing_more(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


def test_what_was_given_is_left_alone() -> None:
    target: dict[str, Any] = {"a": {"b": 1}}
    merge_patch(target, {"a": {"b": None, "c": 1}})
    assert target == {"a": {"b": 1}}


def test_metadata_does_not_grow_without_end() -> None:
    present: dict[str, Any] = {}
    for n in range(6):
        present = merged_metadata(present, {f"k{n}": "x" * 10_000})
    with pytest.raises(Invalid) as caught:
        merged_metadata(present, {"more": "x" * 10_000})
    assert caught.value.errors[0].pointer == "/metadata"
    assert merged_metadata(present, None) == {}
