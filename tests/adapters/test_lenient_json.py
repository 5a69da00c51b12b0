"""JSON of answers that strict parsers refuse: what is read of it, and what is written back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.adapters.lenient_json import lenient_dumps, lenient_loads


def strict(text: str) -> Any:
    """The value of a text that is JSON, and not only taken for it."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (rb'{"a": "\ud800", "b": NaN}', {"a": "\ud800", "b": None}),
        (rb'["\udc00", Infinity, -Infinity, 1e999]', ["\udc00", None, None, None]),
        (rb"[NaN]", [None]),
        (rb'["NaN", "\ud800"]', ["NaN", "\ud800"]),
        (b"[" + b"1" * 40 + rb', "\ud800"]', [int("1" * 40), "\ud800"]),
        (b'"\xff\t"', "\ufffd\t"),
        ('{"ä": ["ö", 0.1]}'.encode(), {"ä": ["ö", 0.1]}),
    ],
)
def test_what_was_read_is_written_as_json(raw: bytes, value: Any) -> None:
    assert strict(lenient_dumps(lenient_loads(raw))) == value


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, b"1" * 5_000])
def test_what_is_no_value_of_any_kind(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        lenient_loads(raw)
