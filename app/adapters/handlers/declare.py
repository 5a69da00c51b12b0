"""What handlers are declared with, and what they are given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from app.adapters.plugins import BadPlugin
from app.core.events.base import camel

ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "on_start": ("attempt", "is_retry", "is_fallback"),
    "on_complete": ("state",),
    "on_error": ("error", "will_retry", "will_fallback"),
    "on_event": ("event",),
    "on_violation": ("violation",),
    "on_retry": ("attempt", "reason"),
    "on_fallback": ("index", "reason"),
    "on_resume": ("checkpoint", "token_count"),
    "on_checkpoint": ("checkpoint", "token_count"),
    "on_timeout": ("timeout_type", "elapsed_seconds"),
    "on_abort": ("token_count", "content_length"),
    "on_drift": ("drift_types", "confidence"),
    "on_tool_call": ("tool_name", "tool_call_id", "args"),
    "on_token": ("text",),
}
"""The callbacks, and the positional arguments that they are called with."""

Function = Callable[..., Any]
"""Plain or async; what it returns is awaited when it can be, and otherwise ignored."""


class InvalidHandler(BadPlugin):
    """The declaration of a handler makes no sense; says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """A handler that is made of functions.

    Any object with methods of these names is one too. A function that takes `run` as a keyword is given a
    `CallbackRun` with it.
    """

    on_start: Function | None = None
    on_complete: Function | None = None
    on_error: Function | None = None
    on_event: Function | None = None
    on_violation: Function | None = None
    on_retry: Function | None = None
    on_fallback: Function | None = None
    on_resume: Function | None = None
    on_checkpoint: Function | None = None
    on_timeout: Function | None = None
    on_abort: Function | None = None
    on_drift: Function | None = None
    on_tool_call: Function | None = None
    on_token: Function | None = None


@dataclass(frozen=True, slots=True)
class CallbackRun:
    """Which run a callback is about, and where in it the callback stands."""

    run_id: UUID
    project_id: UUID
    branch_id: UUID | None
    stream_id: UUID
    attempt: int
    """From 1."""
    fallback_index: int
    """From 0."""
    seq: int
    """Number of the event that the callback follows."""
    ts: int
    """Its time, milliseconds since the epoch."""
    context: Mapping[str, Any]
    """The caller's."""


@dataclass(frozen=True, slots=True)
class CallbackError:
    """What `on_error` is given."""

    code: str
    message: str
    category: str
    retryable: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)


class Members(Mapping[str, Any]):
    """What `on_complete`, `on_violation` and `on_event` are given.

    A read-only mapping, whose members can be read as attributes too: `tokenCount` also as `token_count`.
    """

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __getattr__(self, name: str) -> Any:
        for spelt in (name, camel(name)):
            if spelt in self._members:
                return self._members[spelt]
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"Members({dict(self._members)!r})"


@dataclass(frozen=True, slots=True)
class Method:
    """A callback of a handler."""

    function: Function
    takes_run: bool
    on_loop: bool
    """Whether it is a coroutine function; others run in a thread."""


def methods_of(handler: Any) -> dict[str, Method]:
    """The callbacks of a handler, by name. Raises InvalidHandler for one that cannot be used."""
    if isinstance(handler, type):
        raise InvalidHandler(f"{handler!r} is a class; declare an instance of it")
    found = {name: getattr(handler, name, None) for name in ARGUMENTS}
    methods = {name: _method(name, function) for name, function in found.items() if function is not None}
    if not methods:
        raise InvalidHandler(f"{handler!r} has no method named after a callback, such as on_complete")
    return methods


def _method(name: str, function: Any) -> Method:
    if not callable(function):
        raise InvalidHandler(f"{name} is no function: {function!r}")
    on_loop = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether it is callable is not the question
    )
    arguments = ARGUMENTS[name]
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have none
        return Method(function, False, on_loop)
    for takes_run in (True, False):
        try:
            signature.bind(*arguments, **({"run": None} if takes_run else {}))
        except TypeError:
            continue
        return Method(function, takes_run, on_loop)
    raise InvalidHandler(f"{name} has to take {', '.join(arguments)}; it takes {signature}")
