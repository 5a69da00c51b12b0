"""JSON from outside: what is read, what is refused, and that digits survive."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.json_text import (
    MAX_DEPTH,
    REPLACEMENT,
    NotJson,
    canonical,
    dumps,
    is_storable,
    pointer,
    read,
    read_mended,
    storable,
)

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=25,
)


@given(values)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert read(dumps(value)) == value
    assert read(dumps(value).decode()) == value
    assert read(json.dumps(value)) == value


@given(st.text() | st.binary())
def test_nothing_but_its_own_error_is_raised(source: str | bytes) -> None:
    with contextlib.suppress(NotJson):
        read(source)
    if isinstance(source, str):
        with contextlib.suppress(NotJson):
            assert is_storable(dumps(read_mended(source).value).decode())


@given(st.text(alphabet='{}[]":,\\ud80c0123456789eE.-+tfn \n\ufeff\ud800\0', max_size=40))
def test_nothing_but_its_own_error_is_raised_for_what_looks_like_json(source: str) -> None:
    for reader in (read, read_mended):
        with contextlib.suppress(NotJson):
            reader(source)


@pytest.mark.parametrize(
    "digits", ["7310459921883410003", "18446744073709551617", "-9007199254740993", "1" * 4300]
)
def test_integers_keep_their_digits(digits: str) -> None:
    value = read(f'{{"id": {digits}}}')
    assert type(value["id"]) is int
    assert dumps(value).decode() == f'{{"id":{digits}}}'
    assert canonical(value).decode() == f'{{"id":{digits}}}'


@pytest.mark.parametrize(
    ("source", "offset"),
    [
        ("", 0),
        ("nul", None),
        ("NaN", None),
        ("[1, Infinity]", None),
        ("-Infinity", None),
        ("1e999", None),
        ("[12345678901234567890, NaN]", None),
        ("[12345678901234567890, 1e999]", None),
        ("1" * 4301, None),
        ("{} {}", None),
        ("[1,]", None),
        ("\ufeff{}", None),
        ("'a'", None),
        ('"\x01"', None),
        (b"\xff", None),
        (b'"\xed\xa0\x80"', None),
        (b'[12345678901234567890, "\xff"]', 24),
        ('"é\ud800"', 3),
        ('"é\\ud800x"', 3),
        ('"\\udc00\\ud800"', 1),
        ('{"a\\u0000": 1}', 3),
        ('"\\\\\\u0000"', 3),
    ],
)
def test_what_is_no_json_is_refused(source: str | bytes, offset: int | None) -> None:
    with pytest.raises(NotJson) as refused:
        read(source)
    if offset is not None:
        assert refused.value.offset == offset
        assert str(refused.value).endswith(f"(at byte {offset})")


@pytest.mark.parametrize(
    ("source", "value"),
    [('"\\ud83d\\ude00"', "😀"), ('"\\\\u0000"', "\\u0000"), ('"\\\\\\\\ud800"', "\\\\ud800"), ("-0", 0)],
)
def test_escapes_that_only_look_dangerous_are_read(source: str, value: Any) -> None:
    assert read(source) == value


def test_the_greatest_depth_is_read_and_the_next_is_refused_with_its_place() -> None:
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    deep = '{"a": [1, {"b": [2]}]}'
    assert read(deep, max_depth=4)
    with pytest.raises(NotJson) as refused:
        read(deep, max_depth=3)
    assert refused.value.pointer == "/a/1/b"


@pytest.mark.parametrize("opening", ["[", '{"a":', "[12345678901234567890,"])
@pytest.mark.parametrize("levels", [65, 500, 5_000, 100_000])
def test_no_depth_exhausts_the_stack(opening: str, levels: int) -> None:
    for closing in ("", ("]" if opening[0] == "[" else "}") * levels):
        with pytest.raises(NotJson):
            read(opening * levels + "1" + closing)


def test_a_key_that_stands_twice_is_refused() -> None:
    for source in ('{"url": 1, "url": 2}', '[{"a:b": {"x": ":"}}, {"c": 1, "\\u0063": 2}]'):
        with pytest.raises(NotJson, match="stands twice"):
            read(source)
        read(source, unique_keys=False)
    assert read('{"a:b": ":", "c": {"a:b": "\\":"}}') == {"a:b": ":", "c": {"a:b": '":'}}


@given(values, st.integers(min_value=0, max_value=3))
def test_keys_of_different_objects_are_never_taken_for_one(value: Any, copies: int) -> None:
    assert read(dumps([value] * copies)) == [value] * copies


def test_mending_replaces_what_cannot_be_stored_and_counts_it() -> None:
    mended = read_mended(
        '{"title": "smile \\ud83d and \\ude00, \\ud83d\\ude00 \\\\ud83d", "n\\u0000": "\ud800"}'
    )
    assert mended.value == {
        "title": f"smile {REPLACEMENT} and {REPLACEMENT}, 😀 \\ud83d",
        f"n{REPLACEMENT}": REPLACEMENT,
    }
    assert mended.replaced == 4
    assert read_mended('{"a": "b"}').replaced == 0


@given(st.text())
def test_a_storable_text_is_utf_8_without_nul_and_as_long(source: str) -> None:
    made = storable(source)
    assert is_storable(made)
    assert b"\0" not in made.encode()
    assert len(made) == len(source)
    assert all(a == b or b == REPLACEMENT for a, b in zip(source, made, strict=True))


def test_a_text_that_is_storable_is_not_copied() -> None:
    for source in ("plain", "é😀", ""):
        assert storable(source) is source
    assert storable("a\0b\udfffc") == f"a{REPLACEMENT}b{REPLACEMENT}c"


@given(st.dictionaries(text, scalars, min_size=2))
def test_the_canonical_form_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    other = dict(reversed(value.items()))
    assert canonical(value) == canonical(other)
    assert read(canonical(value)) == value


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), [10**30, object()], [10**30, math.nan], [10**30, "\ud800"]]
)
def test_what_has_no_json_form_is_not_written(value: Any) -> None:
    with pytest.raises(NotJson):
        dumps(value)


def test_pointers_are_escaped() -> None:
    assert pointer() == ""
    assert pointer("a/b", 0, "m~n", "") == "/a~1b/0/m~0n/"
