"""Find what plug-ins declare: entry points of a group, and modules named in the settings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any


class BadPlugIn(Exception):
    """Something that a plug-in declares cannot be loaded or used; the message says what and where."""


def declarations(group: str, modules: Iterable[str], constant: str) -> Iterator[tuple[str, Any]]:
    """(where it stands, what is declared), entry points first, then the modules in their order.

    A module declares a list named `constant`. An entry point may lead to such a module, to one entry, to a
    list of entries, or to a generator function that yields them. Raises `BadPlugIn`.
    """
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        where = f"entry point {point.name!r}"
        yield from _entries(_guarded(point.load, where), where, constant)
    for name in modules:
        where = f"module {name!r}"
        yield from _entries(_guarded(lambda name=name: importlib.import_module(name), where), where, constant)


def _guarded(load: Any, where: str) -> Any:
    try:
        return load()
    except Exception as error:
        raise BadPlugIn(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error


def _entries(declared: Any, where: str, constant: str) -> Iterator[tuple[str, Any]]:
    if isinstance(declared, ModuleType):
        if not hasattr(declared, constant):
            raise BadPlugIn(f"{where} has no list `{constant}`")
        declared = getattr(declared, constant)
    if inspect.isgeneratorfunction(declared):
        declared = _guarded(lambda: list(declared()), where)
    for entry in declared if isinstance(declared, Iterable) else [declared]:
        yield where, entry
