"""Events: one class per type, its wire form derived from its fields.

An event knows neither `seq` nor `ts`: the recorder gives both. Classes are plain slotted dataclasses
(not frozen: making a frozen one costs twice, and one is made per token); nobody changes an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform


@dataclass(frozen=True, slots=True)
class Callback:
    """A lifecycle callback that fires directly after the event that carries it."""

    name: str
    args: tuple[Any, ...]

    def wire(self) -> dict[str, Any]:
        """The form in which it is stored and sent."""
        return {"name": self.name, "args": list(self.args)}


@dataclass(frozen=True, slots=True)
class TextRef:
    """Stands for the first `length` code points of the stream's text as it is where the event stands.

    The text is in the log already, so it is not stored again: `n` tokens cost O(n) bytes, however many
    checkpoints there are. Only what is marked as `refers` may hold one, in its meta or its callbacks.
    """

    length: int
    """In code points."""


class Event:
    """One fact about a run.

    Subclasses are `@event("TYPE", code)` dataclasses. A field whose value is None is left out of `meta`
    when its default is None (an optional field), and sent as null otherwise.
    """

    __slots__ = ("callbacks",)

    type: ClassVar[str]
    """The name on the wire, upper case."""
    code: ClassVar[int]
    """The number under which the type is stored; never reused."""
    family: ClassVar[str]
    """Name of the module that declares it."""
    refers: ClassVar[bool]
    """Whether its meta or callbacks may hold a `TextRef`."""
    per_stream: ClassVar[bool]
    """Whether it can belong to a stream; otherwise it is one of the run itself."""
    _wire_names: ClassVar[tuple[tuple[str, str, bool], ...]]

    callbacks: tuple[Callback, ...]

    def meta(self) -> dict[str, Any]:
        """The event's own fields in camelCase."""
        out: dict[str, Any] = {}
        for name, wire, optional in self._wire_names:
            value = getattr(self, name)
            if value is not None or not optional:
                out[wire] = value
        return out

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """The members that every meta of the type has."""
        return tuple(wire for _, wire, optional in cls._wire_names if not optional)

    def then(self, *callbacks: Callback) -> Self:
        """This event, with the callbacks that fire after it."""
        self.callbacks = callbacks
        return self

    def __post_init__(self) -> None:
        self.callbacks = ()


E_co = TypeVar("E_co", bound=type[Event])

_BY_TYPE: dict[str, type[Event]] = {}
_BY_CODE: dict[int, type[Event]] = {}


def camel(name: str) -> str:
    """`content_offset` -> `contentOffset`; `code_`, so spelt beside the class's own `code`, -> `code`."""
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


@dataclass_transform()
def event(
    type_name: str, code: int, *, refers: bool = False, per_stream: bool = True
) -> Callable[[E_co], E_co]:
    """Class decorator: declare an event type. Declaring a name or a number twice is an error at import."""

    def declare(cls: E_co) -> E_co:
        made: Any = dataclass(slots=True, eq=True)(cls)
        made.type, made.code, made.refers, made.per_stream = type_name, code, refers, per_stream
        made.family = made.__module__.rsplit(".", 1)[-1]
        made._wire_names = tuple((f.name, camel(f.name), f.default is None) for f in fields(made))
        if type_name in _BY_TYPE or code in _BY_CODE:
            raise ValueError(f"event type {type_name!r} or code {code} is declared twice")
        _BY_TYPE[type_name] = _BY_CODE[code] = made
        return cast(E_co, made)

    return declare


def event_types() -> Mapping[str, type[Event]]:
    """Every declared type, by its name on the wire."""
    return _BY_TYPE


def by_code(code: int) -> type[Event]:
    """The type stored under a number. Raises KeyError for a number of a newer version."""
    return _BY_CODE[code]
