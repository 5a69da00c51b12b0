"""Joining the fragments of tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.chunks import ToolCallDelta
from app.core.lifecycle.toolcalls import MAX_DEPTH, BadCall, ToolCall, ToolCallParts, read_arguments


def joined(*deltas: ToolCallDelta) -> tuple[list[ToolCall], BadCall | None]:
    """What fragments make up; ids are numbered."""
    parts = ToolCallParts()
    for delta in deltas:
        parts.add(delta)
    made = iter(range(100))
    return parts.joined(lambda: f"made_{next(made)}")


def one(*deltas: ToolCallDelta) -> ToolCall:
    """The only call that fragments make up."""
    (call,), bad = joined(*deltas)
    assert bad is None
    return call


def test_two_fragments_of_one_index_in_one_chunk_are_one_call() -> None:
    call = one(
        ToolCallDelta(0, "call_a", "get_city", ""),
        ToolCallDelta(0, arguments='{"id"'),
        ToolCallDelta(0, arguments=":7}"),
    )
    assert call == ToolCall(0, "call_a", "get_city", {"id": 7}, '{"id":7}')


def test_a_repeated_name_is_not_joined_and_an_empty_one_erases_nothing() -> None:
    call = one(
        ToolCallDelta(0, "call_r", "lookup", "{"),
        ToolCallDelta(0, "call_r", "lookup", '"k":'),
        ToolCallDelta(0, "call_r", "", "1}"),
    )
    assert (call.id, call.name, call.arguments) == ("call_r", "lookup", {"k": 1})


def test_the_first_name_and_id_count() -> None:
    call = one(ToolCallDelta(0, "call_1", "first", "{}"), ToolCallDelta(0, "call_2", "second"))
    assert (call.id, call.name) == ("call_1", "first")


def test_a_name_or_id_may_come_late() -> None:
    call = one(ToolCallDelta(0, arguments="{}"), ToolCallDelta(0, None, "now"), ToolCallDelta(0, "call_x"))
    assert (call.id, call.name) == ("call_x", "now")


@pytest.mark.parametrize("raw", ["", "  ", "\n", "null", " {} "])
def test_no_arguments_mean_an_empty_object(raw: str) -> None:
    call = one(ToolCallDelta(0, "call_z", "list_rooms", raw))
    assert call.arguments == {}
    assert call.raw == raw


def test_calls_are_ordered_by_index_whatever_the_order_of_arrival() -> None:
    calls, bad = joined(
        ToolCallDelta(2, "c", "third"), ToolCallDelta(0, "a", "first"), ToolCallDelta(1, "b", "second")
    )
    assert [call.name for call in calls] == ["first", "second", "third"]
    assert bad is None


def test_calls_are_counted_from_nought_whatever_the_provider_begins_with_or_leaves_out() -> None:
    """As who reads the log counts them, in which the provider's numbers do not stand."""
    calls, bad = joined(ToolCallDelta(4, "b", "second"), ToolCallDelta(1, "a", "first"))
    assert [(call.index, call.name) for call in calls] == [(0, "first"), (1, "second")]
    assert bad is None


def test_a_call_without_an_id_is_given_one_and_a_shared_id_is_kept() -> None:
    calls, _ = joined(
        ToolCallDelta(0, None, "a"),
        ToolCallDelta(1, "", "b"),
        ToolCallDelta(2, "call_1", "c"),
        ToolCallDelta(3, "call_1", "d"),
    )
    assert [call.id for call in calls] == ["made_0", "made_1", "call_1", "call_1"]


def test_integers_keep_their_digits() -> None:
    raw = '{"big": 18446744073709551617, "neg": -9007199254740993}'
    assert one(ToolCallDelta(0, "i", "n", raw)).arguments == {
        "big": 18446744073709551617,
        "neg": -9007199254740993,
    }


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ('{"a": 1', "cannot be read: unexpected end of data (at byte 7)"),
        ('{"a": 1}}', "cannot be read"),
        ("['a']", "cannot be read"),
        ("[1]", "not a JSON object"),
        ('"{}"', "not a JSON object"),
        ("7", "not a JSON object"),
        ('{"a": NaN}', "cannot be read"),
        ('{"a": -Infinity}', "cannot be read"),
        ('{"a": 1e999}', "cannot be read"),
        ('{"a": 1e999, "b": ' + "9" * 30 + "}", "beyond the range"),
        ('{"url": 1, "url": 2}', "twice"),
        ('{"x": {"k": 1, "k": 1}}', "twice"),
        ('{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}", "nested more than 100 levels deep"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "cannot be read"),
        ('{"a": ' + "9" * 10_000 + "}", "digits"),
    ],
    ids=lambda value: value[:24],
)
def test_arguments_that_cannot_be_run_are_said_to_be_so(raw: str, why: str) -> None:
    calls, bad = joined(ToolCallDelta(0, "i", "good"), ToolCallDelta(1, "j", "odd", raw))
    assert [call.name for call in calls] == ["good"]
    assert bad is not None
    assert (bad.index, bad.name, bad.raw) == (1, "odd", raw)
    assert why in str(bad)


def test_arguments_may_be_nested_up_to_the_limit() -> None:
    inner = MAX_DEPTH - 1
    assert read_arguments('{"a": ' + "[" * inner + "]" * inner + "}")


def test_what_cannot_be_stored_is_replaced() -> None:
    call = one(
        ToolCallDelta(0, "i\0", "n\0me", '{"a\\u0000": "\\ud83d", "b": "\ud83d", "c": "\\ud83e\\udda6"}')
    )
    assert (call.id, call.name) == ("i\ufffd", "n\ufffdme")
    assert call.arguments == {"a\ufffd": "\ufffd", "b": "\ufffd", "c": "🦦"}
    assert call.replaced == 3, "so that it can be told"


def test_a_call_without_a_name_cannot_be_run() -> None:
    calls, bad = joined(ToolCallDelta(0, "i", None, "{}"))
    assert calls == []
    assert str(bad) == "tool call 0 (without a name): no function is named"


STORABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STORABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STORABLE, inner, max_size=3),
    max_leaves=10,
)


@given(arguments=st.dictionaries(STORABLE, JSON, max_size=4), ascii_only=st.booleans(), data=st.data())
def test_however_arguments_are_cut_they_come_back_whole(
    arguments: dict[str, Any], ascii_only: bool, data: st.DataObject
) -> None:
    raw = json.dumps(arguments, ensure_ascii=ascii_only)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    call = one(ToolCallDelta(0, "i", "n"), *(ToolCallDelta(0, arguments=piece) for piece in pieces))
    assert call.arguments == arguments
    assert call.raw == raw
