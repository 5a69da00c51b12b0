"""Find the plug-ins of one kind: entry points of installed packages, and modules named in the settings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BadPlugin(ValueError):
    """Something cannot be loaded as a plug-in; the message says what and why."""


@dataclass(frozen=True, slots=True)
class PluginKind(Generic[T]):
    """What is looked for, and where."""

    group: str
    """Of entry points."""
    constant: str
    """The list that a module has."""
    make: Callable[[Any], T]
    """Turns what was declared into what is wanted; raises `bad` for what cannot be."""
    bad: type[BadPlugin]


def load_plugins(kind: PluginKind[T], modules: Iterable[str]) -> list[T]:
    """What the entry points of the kind lead to, then what each of `modules` has in its list.

    An entry point may lead to a module with that list, to one plug-in, to a list of them, or to a generator
    function that yields them. Raises the kind's error, naming what could not be loaded.
    """
    found: list[T] = []
    for point in sorted(entry_points(group=kind.group), key=lambda point: (point.name, point.value)):
        where = f"entry point {point.name!r}"
        found += _made(_guarded(point.load, where, kind.bad), where, kind)
    for name in modules:
        where = f"module {name!r}"
        module = _guarded(lambda name=name: importlib.import_module(name), where, kind.bad)
        found += _made(module, where, kind)
    return found


def _guarded(load: Any, where: str, bad: type[BadPlugin]) -> Any:
    try:
        return load()
    except Exception as error:
        raise bad(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error


def _made(declared: Any, where: str, kind: PluginKind[T]) -> Iterator[T]:
    if isinstance(declared, ModuleType):
        if not hasattr(declared, kind.constant):
            raise kind.bad(f"{where} has no list `{kind.constant}`")
        declared = getattr(declared, kind.constant)
    if inspect.isgeneratorfunction(declared):
        declared = _guarded(lambda: list(declared()), where, kind.bad)
    for entry in declared if isinstance(declared, Iterable) else [declared]:
        try:
            yield kind.make(entry)
        except kind.bad as error:
            raise kind.bad(f"{where}: {error}") from None
