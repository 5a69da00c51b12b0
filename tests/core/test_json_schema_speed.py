"""What schemas cost grows with them as it should; by ratio, for no clock is the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from app.core.json_schema import compile_schema
from benchmarks.schemas import alternatives, fields, listed, tree

SHAPES: dict[str, tuple[Callable[[int], tuple[dict[str, Any], Any]], int, int]] = {
    "fields": (fields, 100, 1_000),
    "alternatives": (alternatives, 50, 500),
    "levels": (tree, 6, 60),
    "listed values": (listed, 100, 1_000),
}


def seconds(work: Callable[[], object], times: int = 20) -> float:
    """The least that it took."""
    took = []
    for _ in range(times):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)


@pytest.mark.parametrize("shape", SHAPES)
def test_ten_times_as_large_is_no_hundred_times_as_slow(shape: str) -> None:
    make, few, many = SHAPES[shape]
    spent = []
    for count in (few, many):
        schema, value = make(count)
        compiled = compile_schema(schema)
        assert compiled.check(value) == []
        spent.append(seconds(lambda c=compiled, v=value: [c.check(v) for _ in range(20)]))  # type: ignore[misc]
    assert spent[1] < 40 * spent[0] + 0.005


@pytest.mark.parametrize("shape", SHAPES)
def test_compiling_ten_times_as_much_is_no_hundred_times_as_slow(shape: str) -> None:
    make, few, many = SHAPES[shape]

    def fresh(count: int) -> float:
        schema, _ = make(count)
        titles = iter(range(10))
        return seconds(lambda: compile_schema({**schema, "title": f"{shape} {count} {next(titles)}"}), 10)

    assert fresh(many) < 40 * fresh(few) + 0.005


def test_a_known_schema_is_found_and_not_built_anew() -> None:
    schema, _ = fields(1_000)
    titles = iter(range(10))
    new = seconds(lambda: compile_schema({**schema, "title": f"new {next(titles)}"}), 10)
    compile_schema(schema)
    assert seconds(lambda: compile_schema(schema)) < new / 3
