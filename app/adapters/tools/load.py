"""Find the Python tools of this installation: entry points, and modules named in the settings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Final

from app.adapters.tools.python import Tool
from app.adapters.tools.signature import InvalidTool

ENTRY_POINTS: Final = "branchline.tools"
"""The group in which a package announces its tools."""


def load_tools(modules: Iterable[str] = ()) -> list[Tool]:
    """The tools of all entry points, then those of `modules`, each of which has a list `TOOLS`.

    An entry point may lead to a module with `TOOLS`, to a `Tool`, to a function that is a tool, to a list of
    those, or to a generator function that yields them. Raises `InvalidTool` naming what could not be loaded.
    """
    found: list[Tool] = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)):
        where = f"entry point {point.name!r}"
        found += _tools(_guarded(point.load, where), where)
    for name in modules:
        where = f"module {name!r}"
        found += _tools(_guarded(lambda name=name: importlib.import_module(name), where), where)
    return found


def _guarded(load: Any, where: str) -> Any:
    try:
        return load()
    except Exception as error:
        raise InvalidTool(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error


def _tools(declared: Any, where: str) -> Iterator[Tool]:
    if isinstance(declared, ModuleType):
        if not hasattr(declared, "TOOLS"):
            raise InvalidTool(f"{where} has no list `TOOLS`")
        declared = declared.TOOLS
    if inspect.isgeneratorfunction(declared):
        declared = _guarded(lambda: list(declared()), where)
    entries = declared if isinstance(declared, Iterable) else [declared]
    for entry in entries:
        try:
            yield Tool.of(entry)
        except InvalidTool as error:
            raise InvalidTool(f"{where}: {error}") from None
