"""The schema of a function's arguments, and what its annotations make of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from app.adapters.tools.signature import InvalidTool, Unconvertible, arguments_of
from app.core.json_schema import compile_schema


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Place(BaseModel):
    city: str
    zip: int | None = None


@dataclass
class Route:
    start: Place
    end: Place


def schema(func: Callable[..., Any]) -> dict[str, Any]:
    made = dict(arguments_of("t", func, None).parameters)
    compile_schema(made)
    return made


def plain(a: int, b: float, c: str, d: bool, e: list[int], f: dict[str, str]) -> None: ...


def optional(a: int, b: int = 9, c: str | None = None, d: Size = Size.SMALL, *, e: Any) -> None: ...


def rich(
    on: date, id: UUID, size: Literal["s", "l"], n: Annotated[int, Field(ge=1, description="How many.")]
) -> None: ...


def nested(route: Route, places: list[Place]) -> None: ...


def bare(a, b=1): ...  # type: ignore[no-untyped-def]


def test_types_become_json_types() -> None:
    assert schema(plain) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "number"},
            "c": {"type": "string"},
            "d": {"type": "boolean"},
            "e": {"type": "array", "items": {"type": "integer"}},
            "f": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["a", "b", "c", "d", "e", "f"],
        "additionalProperties": False,
    }


def test_what_has_a_default_stays_optional() -> None:
    made = schema(optional)
    assert made["required"] == ["a", "e"]
    assert made["properties"]["b"] == {"type": "integer", "default": 9}
    assert made["properties"]["c"]["default"] is None
    assert made["properties"]["d"]["default"] == "s"
    assert made["properties"]["e"] == {}
    assert schema(bare)["properties"] == {"a": {}, "b": {"default": 1}}
    assert schema(lambda: None)["properties"] == {}


def test_a_default_without_json_form_is_not_told() -> None:
    def func(a: Any = object()) -> None: ...  # noqa: B008

    assert schema(func)["properties"] == {"a": {}}


def test_rich_types_and_descriptions_are_told() -> None:
    properties = schema(rich)["properties"]
    assert properties["on"]["format"] == "date"
    assert properties["id"]["format"] == "uuid"
    assert properties["size"]["enum"] == ["s", "l"]
    assert properties["n"] == {"type": "integer", "minimum": 1, "description": "How many."}


def test_shared_definitions_stand_once() -> None:
    made = schema(nested)
    assert set(made["$defs"]) == {"Place", "Route"}
    check = compile_schema(made).accepts
    place = {"city": "Oslo"}
    assert check({"route": {"start": place, "end": place}, "places": [place]})
    assert not check({"route": {"start": place, "end": {}}, "places": []})


def test_arguments_become_what_the_function_expects() -> None:
    arguments = arguments_of("t", nested, None)
    place = {"city": "Oslo"}
    converted = arguments.convert({"route": {"start": place, "end": place}, "places": [place]})
    assert converted["route"] == Route(Place(city="Oslo"), Place(city="Oslo"))
    assert arguments_of("t", optional, None).convert({"a": 1.0, "d": "l"}) == {"a": 1, "d": Size.LARGE}


def test_what_cannot_be_converted_is_told_with_its_place() -> None:
    with pytest.raises(Unconvertible) as refused:
        arguments_of("t", rich, None).convert({"on": "tomorrow", "n": 0})
    assert [fault.pointer for fault in refused.value.faults] == ["/on", "/n"]


def test_methods_partials_and_callable_objects_have_signatures() -> None:
    class Shop:
        def price(self, item: str) -> int:
            return len(item)

        def __call__(self, item: str) -> int:
            return len(item)

    for func in (Shop().price, Shop(), functools.partial(plain, 1, 2.0, d=True, e=[], f={})):
        required = schema(func)["required"]
        assert required in (["item"], ["c"])


def positional(a: int, /) -> None: ...


def variadic(*a: int) -> None: ...


def open_ended(a: int, **more: Any) -> None: ...


def unresolvable(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def opaque(a: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (positional, "'a' is positional-only"),
        (variadic, r"\*a cannot be given by name"),
        (open_ended, r"\*\*more needs `parameters`"),
        (unresolvable, "Nowhere"),
        (opaque, "'a' has a type without a JSON form"),
        (min, "no signature"),
    ],
)
def test_a_function_that_cannot_be_called_by_name_is_refused(func: Any, words: str) -> None:
    with pytest.raises(InvalidTool, match=words) as refused:
        arguments_of("broken", func, None)
    assert "'broken'" in str(refused.value)


def test_a_schema_given_by_hand_counts_alone() -> None:
    given = {"type": "object", "properties": {"a": {"type": "string"}}}
    for func in (open_ended, plain):
        arguments = arguments_of("t", func, given)
        assert arguments.parameters is given
        assert arguments.convert({"a": "1", "z": 2}) == {"a": "1", "z": 2}
    with pytest.raises(InvalidTool):
        arguments_of("t", positional, given)
