"""What a tool returns becomes JSON that can be stored, or says that it has no such form."""

from __future__ import annotations

import dataclasses
import math
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app.core.action.jsonable import MAX_OUTPUT, UNSERIALIZABLE, Output, output_of, succeeded
from app.core.action.verdict import Succeeded
from app.core.json_text import dumps, read

Point = namedtuple("Point", "x y")


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    YES = "yes"


class Number(IntEnum):
    ONE = 1


class Model(BaseModel):
    at: datetime
    inner: dict[str, UUID]


@dataclasses.dataclass
class Record:
    name: str
    point: Point


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class HostileMapping(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")


def circular() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


def generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (None, None),
        (0, 0),
        (False, False),
        ("", ""),
        ([], []),
        ({}, {}),
        (10**40, 10**40),
        (1.5, 1.5),
        (math.nan, UNSERIALIZABLE),
        (math.inf, UNSERIALIZABLE),
        ((1, 2), [1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (timedelta(minutes=1.5), "PT90S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        (PurePosixPath("/a/b"), "/a/b"),
        (b"text", "text"),
        (b"\xff", UNSERIALIZABLE),
        (Colour.RED, "red"),
        (Word.YES, "yes"),
        (Number.ONE, 1),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Record("r", Point(1, 2)), {"name": "r", "point": {"x": 1, "y": 2}}),
        (
            Model(at=datetime(2026, 1, 2, tzinfo=UTC), inner={"id": UUID(int=2)}),
            {"at": "2026-01-02T00:00:00+00:00", "inner": {"id": "00000000-0000-0000-0000-000000000002"}},
        ),
        (ValueError("no"), {"error": "ValueError", "message": "no"}),
        ({2: "a", None: "b", True: "c", Colour.RED: "d"}, {"2": "a", "null": "b", "true": "c", "red": "d"}),
        ({(1, 2): "a"}, UNSERIALIZABLE),
        ({"ok": 1, "bad": object()}, {"ok": 1, "bad": UNSERIALIZABLE}),
        (HostileMapping(a=1), UNSERIALIZABLE),
        (circular(), [1, UNSERIALIZABLE]),
        (generator(), UNSERIALIZABLE),
        (int, UNSERIALIZABLE),
        ("a\0b\ud800", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        ({"k\0": 1}, {"k\N{REPLACEMENT CHARACTER}": 1}),
    ],
)
def test_every_kind_of_result_has_a_form(result: Any, value: Any) -> None:
    assert output_of(result) == Output(value)
    assert type(output_of(result).value) is type(value)


def test_an_object_that_resists_is_unserializable_and_harms_nothing_else() -> None:
    assert output_of(Hostile()) == Output(UNSERIALIZABLE)
    assert output_of({"ok": [1], "bad": Hostile()}) == Output({"ok": [1], "bad": UNSERIALIZABLE})


def test_the_same_object_twice_is_no_circle() -> None:
    shared = [1]
    assert output_of([shared, shared]).value == [[1], [1]]


def test_what_is_too_deep_has_no_form() -> None:
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    text = dumps(output_of(deep).value).decode()
    assert UNSERIALIZABLE in text
    assert read(text) is not None


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    )
)
def test_whatever_comes_out_is_json_that_can_be_read(result: Any) -> None:
    output = output_of(result)
    assert read(dumps(output.value)) == output.value


@given(st.text() | st.lists(st.text() | st.integers()), st.integers(min_value=2, max_value=60))
def test_a_large_output_is_cut_to_its_beginning(result: Any, limit: int) -> None:
    whole = output_of(result)
    cut = output_of(result, limit)
    if not cut.truncated:
        assert cut == whole
        assert len(dumps(cut.value)) <= limit
        return
    assert len(dumps(whole.value)) > limit
    assert len(dumps(cut.value)) <= limit
    full = whole.value if isinstance(whole.value, str) else dumps(whole.value).decode()
    assert full.startswith(cut.value)
    longer = full[: len(cut.value) + 1]
    assert len(dumps(longer)) > limit, "no more would have fitted"


def test_the_limit_is_a_mebibyte() -> None:
    assert output_of("x" * (MAX_OUTPUT - 2)) == Output("x" * (MAX_OUTPUT - 2))
    assert output_of("x" * (MAX_OUTPUT - 1)) == Output("x" * (MAX_OUTPUT - 2), truncated=True)


def test_sharing_cannot_make_an_output_explode() -> None:
    bomb: Any = "x"
    for _ in range(50):
        bomb = [bomb] * 10
    output = output_of(bomb)
    assert output.truncated
    assert len(dumps(output.value)) <= MAX_OUTPUT


def test_a_verdict_keeps_the_flag() -> None:
    assert succeeded({1}) == Succeeded([1])
    assert succeeded("x" * 2 * MAX_OUTPUT).truncated
