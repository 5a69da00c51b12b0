"""A value while it is written: whatever is shown stays, and in the end it is the value."""

from __future__ import annotations

import copy
import json
import time
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.json_schema import compile_schema
from app.core.json_text import NotJson, read_mended
from app.core.partial.places import place_of
from app.core.partial.reader import MAX_PATH, NOTHING, PartialReader
from tests.support.patching import UNSET, adds_to, patched

ANYTHING = place_of(True)


def states(pieces: Sequence[str], schema: Any = True) -> list[Any]:
    """The value after each piece, as a client knows it; the reader's own is the same."""
    reader = PartialReader(place_of(schema))
    value: Any = UNSET
    out = []
    for piece in pieces:
        reader.feed(piece)
        value = patched(value, json.loads(reader.changes.take() or "[]"))
        own = reader.value
        assert (value is UNSET) == (own is NOTHING)
        assert value is UNSET or json.dumps(value) == json.dumps(own)
        out.append(copy.deepcopy(value))
    return out


def last(text: str, schema: Any = True) -> Any:
    """What is shown of a text that came in single characters, which is what is shown of it as a whole."""
    whole = states([text], schema)[-1]
    single = states(list(text) or [""], schema)[-1]
    assert whole == single
    return whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", UNSET),
        (" \n\ufeff", UNSET),
        ("{", {}),
        ('{"a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a": 1', {}),
        ('{"a": 1,', {"a": 1}),
        ('{"a": tru', {}),
        ('{"a": true}', {"a": True}),
        ('{"a": "', {"a": ""}),
        ('{"a": "b', {"a": "b"}),
        ('{"a": "b\\', {"a": "b"}),
        ('{"a": "b\\n', {"a": "b\n"}),
        ('{"a": "\\ud83d', {"a": ""}),
        ('{"a": "\\ud83d\\udda6', {"a": "\ud83d\udda6".encode("utf-16", "surrogatepass").decode("utf-16")}),
        ('{"a": "\\ud83dx', {"a": "\ufffdx"}),
        ('{"a": "\\ud83d\\n', {"a": "\ufffd\n"}),
        ('{"a": "\\ud83d\\ud83d\\udda6', {"a": "\ufffd\U0001f5a6"}),
        ('{"a": "\\ud83d"', {"a": "\ufffd"}),
        ('{"a": "\\ude00 \\u0000"', {"a": "\ufffd \ufffd"}),
        ('["a", ["b', ["a", ["b"]]),
        ("[1, 2", [1]),
        ("[1, 2]", [1, 2]),
        ("[1, 2,]", [1, 2]),
        ('{"a": 1,}', {"a": 1}),
        ('{"a":\u00a01,\u200b"b": 2}', {"a": 1, "b": 2}),
        ('"a text', "a text"),
        ("12", UNSET),
        ("[1e400, 2]", []),
        ('{"a": 1, "a": 2}', {"a": 1}),
        ('{"a": 1} {"b": 2}', {"a": 1}),
        ("{'a': 1}", {}),
        ('{"a": "two\nlines"}', {"a": "two"}),
        ('{"a": "\\x"}', {"a": ""}),
        ('{"a": "\\u12G4"}', {"a": ""}),
        ('{"a": NaN}', {}),
        ('{"a" 1}', {}),
        ('{"a": 1 "b": 2}', {"a": 1}),
        ('{"a": 1]', {"a": 1}),
        ("[1}", [1]),
        ('{"/~": {"~": [1,', {"/~": {"~": [1]}}),
        ("Sure.\n```json\n[1,", [1]),
        ("```json [1,", [1]),
        ("```\n[1,", [1]),
        ("  ```JSON\r\n[1,", [1]),
        ("```bash\n[1]\n```\n```json\n[2,", [2]),
        ("```text\n```json\n```\n```json\n[2,", [2]),
        ("Take [1] and {HOME}, ", UNSET),
        ("Take `[1]`:\n```json\n[2,", [2]),
        ("```python\n[1,", UNSET),
        ("x ```json\n[1,", UNSET),
    ],
)
def test_what_is_shown(text: str, value: Any) -> None:
    assert last(text) == value


def test_what_is_deeper_than_an_answer_may_be_ends_it() -> None:
    assert json.dumps(last("[" * 5_000)).count("[") <= 66


def test_what_has_too_long_a_pointer_comes_with_the_result() -> None:
    name = "n" * MAX_PATH
    assert last(json.dumps({"a": 1, name: {"b": 2}, "c": [3]})) == {"a": 1, "c": [3]}


BOOK = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 5},
        "kind": {"enum": ["novel", "essay"]},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "day": {"type": "string", "format": "date"},
        "pages": {"type": ["integer", "null"], "minimum": 1},
        "never": False,
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "parts": {"type": "array", "items": {"type": "integer"}},
        "of": {"$ref": "#"},
        "either": {
            "anyOf": [
                {"type": "object", "properties": {"is": {"const": "a"}, "x": {"type": "integer"}}},
                {"type": "object", "properties": {"is": {"const": "b"}, "x": {"type": "string"}}},
                {"type": "null"},
            ]
        },
        "all": {
            "allOf": [{"type": ["string", "integer"]}, {"type": ["string", "null"], "enum": ["x", 1, None]}]
        },
        "free": {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
        "whole": {"const": {"a": 1}},
        "pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"kind": "nov', {}),
        ('{"kind": "novel"', {"kind": "novel"}),
        ('{"kind": "poem", "pages": 3}', {"pages": 3}),
        ('{"code": "ab', {}),
        ('{"code": "ab"', {"code": "ab"}),
        ('{"code": "A1", "pages": 3}', {"pages": 3}),
        ('{"day": "2026-1', {}),
        ('{"day": "2026-11-30"', {"day": "2026-11-30"}),
        ('{"title": "abc', {"title": "abc"}),
        ('{"title": "abcdefgh", "pages": 1}', {"title": "abcde", "pages": 1}),
        ('{"title": 5, "pages": 1}', {"pages": 1}),
        ('{"title": {"a": [1]}, "pages": 1}', {"pages": 1}),
        ('{"pages": 0, "kind": "novel"}', {"kind": "novel"}),
        ('{"pages": "3"', {}),
        ('{"pages": null}', {"pages": None}),
        ('{"pages": true}', {}),
        ('{"never": {"a": 1}, "extra": [1], "pages": 2}', {"pages": 2}),
        ('{"tags": ["a", "b", "c"]}', {"tags": ["a", "b"]}),
        ('{"parts": [1, "x", 2]}', {"parts": [1]}),
        ('{"parts": [1, {"a": 1}, 2]}', {"parts": [1]}),
        ('{"of": {"of": {"pages": 0, "title": "x', {"of": {"of": {"title": "x"}}}),
        ('{"either": {"is": "b", "x": 1}}', {"either": {"is": "b"}}),
        ('{"either": {"is": "b", "x": "y', {"either": {"is": "b", "x": "y"}}),
        ('{"either": {"x": 1', {"either": {}}),
        ('{"either": {"x": 1,', {"either": {"x": 1}}),
        ('{"either": {"is": "c", "x": 1,', {"either": {"x": 1}}),
        ('{"either": null}', {"either": None}),
        ('{"either": "x"}', {}),
        ('{"all": "x"}', {"all": "x"}),
        ('{"all": 1}', {}),
        ('{"free": {"xy": "z"}}', {"free": {"xy": "z"}}),
        ('{"whole": {"a": 1}}', {}),
        ('{"pair": [1, "a", 2]}', {"pair": [1, "a"]}),
        ("[1]", UNSET),
        ('"text"', UNSET),
    ],
)
def test_only_what_may_be_part_of_a_valid_value_is_shown(text: str, value: Any) -> None:
    assert last(text, BOOK) == value


signs = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


def test_a_bound_may_be_larger_than_any_float() -> None:
    assert last('"abc"', {"type": "string", "maxLength": 10**400}) == "abc"


def test_alternatives_are_counted_before_they_are_combined() -> None:
    many: list[Any] = [{"minProperties": n} for n in range(300)]
    schema = {"anyOf": many, "oneOf": [{"maxProperties": n} for n in range(300)]}
    tracemalloc.start()
    try:
        assert last('{"a": 1}', schema) == {"a": 1}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000, "each of 90,000 combinations takes some hundred bytes"


def test_a_schema_that_says_too_much_says_nothing() -> None:
    kinds = {"anyOf": [{"type": "object", "properties": {"k": {"const": n}}} for n in range(65)]}
    assert last('{"k": "none of them"}', kinds) == {"k": "none of them"}
    defs: dict[str, Any] = {"l0": {"type": "integer"}}
    for level in range(1, 16):
        defs[f"l{level}"] = {"allOf": [{"$ref": f"#/$defs/l{level - 1}"}] * 2}
    doubling = {"$defs": defs, "items": {"$ref": "#/$defs/l15"}}
    assert last('["no integer", 1]', doubling) == ["no integer", 1]
    assert last('["no integer", 1]', {**doubling, "items": {"$ref": "#/$defs/l3"}}) == []


names = st.text(signs, max_size=5)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(signs, max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def cut(text: str, data: st.DataObject) -> list[str]:
    """The text in pieces, some of them empty."""
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@given(values, st.booleans(), st.sampled_from([None, 1]), st.data())
def test_a_value_cut_anywhere_only_grows_and_ends_as_it_is(
    value: Any, ascii: bool, indent: int | None, data: st.DataObject
) -> None:
    text = json.dumps(
        [value] if not isinstance(value, dict | list) else value, ensure_ascii=ascii, indent=indent
    )
    expected = json.loads(text)
    known = states(cut(text, data))
    assert all(adds_to(a, b) for a, b in zip(known, [*known[1:], expected], strict=True))
    assert json.dumps(known[-1]) == json.dumps(expected)


@given(st.text(alphabet='{}[]",:\\u0d8e12tn \n`json\u00a0', max_size=40), st.data())
def test_any_text_can_be_read(text: str, data: st.DataObject) -> None:
    known = states(cut(text, data))
    assert all(adds_to(a, b) for a, b in pairwise(known))
    try:
        value = read_mended(text.strip()).value
    except NotJson:
        return
    if isinstance(value, dict | list):
        assert json.dumps(known[-1]) == json.dumps(value)
    else:
        assert known[-1] is UNSET or known[-1] == value


schemas = st.recursive(
    st.sampled_from(
        [True, False, {"type": "string"}, {"type": "integer"}, {"enum": [1, "a"]}, {"pattern": "a"}]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"items": items}, inner),
        st.builds(lambda of: {"anyOf": of}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda of: {"allOf": of}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(
            lambda properties, rest: {"properties": properties, "additionalProperties": rest},
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            inner,
        ),
    ),
    max_leaves=8,
)
small = st.recursive(
    st.sampled_from([None, 1, 2, "a", "b", True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(schemas, small)
def test_a_valid_value_is_shown_whole(schema: Any, value: Any) -> None:
    if not isinstance(value, dict | list) or not compile_schema({"allOf": [schema]}).accepts(value):
        return
    if "enum" in json.dumps(schema):
        return  # What is listed as a whole is shown as a whole.
    assert last(json.dumps(value), {"allOf": [schema]}) == value


@pytest.mark.parametrize(
    "piece",
    ['{"a":', "[", '["a",1],', '"', "\\u0041", "\\", "word ", "1", "```json\n", "\n", '{"k":[', "x" * 50],
)
def test_it_takes_linear_time(piece: str) -> None:
    def seconds(length: int) -> float:
        text = '{"items": ["' + piece * (length // len(piece))
        took = []
        for _ in range(3):
            reader = PartialReader(ANYTHING)
            began = time.thread_time()
            for at in range(0, len(text), 7):
                reader.feed(text[at : at + 7])
                reader.changes.take()
            took.append(time.thread_time() - began)
        return min(took)

    # Ten times the text may take forty times as long, never a hundred times; the constant covers the clock.
    assert seconds(100_000) < 40 * seconds(10_000) + 0.05
