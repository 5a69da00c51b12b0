"""Schemas and partial values on their own, in CPU time: for each value that is checked, or each token."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from app.core.json_schema import JsonSchema, compile_schema
from app.core.partial.places import place_of
from app.core.partial.reader import PartialReader
from benchmarks.client import LoadFailed
from benchmarks.figures import Figures, Scale, p50

_KINDS: Final[tuple[tuple[dict[str, Any], Any], ...]] = (
    ({"type": "string", "maxLength": 50}, "some text"),
    ({"type": "integer", "minimum": 0}, 3),
    ({"type": "number"}, 2.5),
    ({"type": "boolean"}, True),
    ({"enum": ["low", "middle", "high"]}, "middle"),
)
_TOKEN: Final = 4
"""Code points of one token."""


def fields(count: int) -> tuple[dict[str, Any], Any]:
    """A schema with so many fields, all of them required, and a value that fits."""
    names = [f"field_{number}" for number in range(count)]
    kinds = [_KINDS[number % len(_KINDS)] for number in range(count)]
    schema = {
        "type": "object",
        "properties": {name: kind for name, (kind, _) in zip(names, kinds, strict=True)},
        "required": names,
        "additionalProperties": False,
    }
    return schema, {name: value for name, (_, value) in zip(names, kinds, strict=True)}


def alternatives(count: int) -> tuple[dict[str, Any], Any]:
    """So many kinds of object told apart by one member, and the last of them."""
    kinds = [
        {"type": "object", "properties": {"kind": {"const": number}}, "required": ["kind"]}
        for number in range(count)
    ]
    return {"anyOf": kinds}, {"kind": count - 1}


def tree(depth: int) -> tuple[dict[str, Any], Any]:
    """A schema that contains itself, and a value so deep."""
    schema = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}}
    value: dict[str, Any] = {"v": 0}
    for level in range(depth):
        value = {"v": level, "next": value}
    return schema, value


def listed(count: int) -> tuple[dict[str, Any], Any]:
    """An enumeration of so many texts, and the last of them."""
    return {"enum": [f"value {number}" for number in range(count)]}, f"value {count - 1}"


_CHECKED: Final = {
    "20_fields": fields(20),
    "1000_fields": fields(1_000),
    "500_kinds": alternatives(500),
    "60_deep": tree(60),
    "1000_listed": listed(1_000),
}


def schemas(scale: Scale) -> Figures:
    """Checking a value that fits, and compiling a schema: one that is known, and one that is new."""
    figures: Figures = {}
    for name, (schema, value) in _CHECKED.items():
        compiled = compile_schema(schema)
        figures[f"schema.{name}_us"] = _each_us(lambda c=compiled, v=value: _check(c, v))  # type: ignore[misc]
    known, _ = fields(20)
    figures["schema.again_us"] = _each_us(lambda: compile_schema(known))
    schema, _ = fields(1_000)
    took = []
    for number in range(scale.prompts):
        began = time.process_time()
        compile_schema({**schema, "title": f"{number} {time.monotonic_ns()}"})
        took.append(time.process_time() - began)
    return {**figures, "schema.first_ms": p50(took) * 1000}


def partial(scale: Scale) -> Figures:
    """Reading a structured answer token by token, its changes taken after each."""
    schema, value = fields(20)
    place = place_of({"type": "object", "properties": {"items": {"type": "array", "items": schema}}})
    figures: Figures = {}
    for length in scale.lengths:
        count = length * _TOKEN // len(json.dumps(value)) + 1
        text = json.dumps({"items": [value] * count})[: length * _TOKEN]
        began = time.process_time()
        reader, changes = PartialReader(place), 0
        for at in range(0, len(text), _TOKEN):
            reader.feed(text[at : at + _TOKEN])
            changes += reader.changes.take() is not None
        figures[f"partial.{length}_us"] = (time.process_time() - began) / length * 1e6
        if changes < length / 10:
            raise LoadFailed("a structured answer was not shown as it came")
    return figures


def _check(schema: JsonSchema, value: Any) -> None:
    if schema.check(value):
        raise LoadFailed("a value that fits was refused")


def _each_us(work: Callable[[], object], seconds: float = 0.05) -> float:
    work()
    calls, began = 0, time.process_time()
    while (spent_s := time.process_time() - began) < seconds:
        work()
        calls += 1
    return spent_s / calls * 1e6
