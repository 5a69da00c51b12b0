"""Find the Python tools of this installation: entry points, and modules named in the settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.adapters.plug_ins import BadPlugIn, declarations
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
    try:
        for where, entry in declarations(ENTRY_POINTS, modules, "TOOLS"):
            try:
                found.append(Tool.of(entry))
            except InvalidTool as error:
                raise InvalidTool(f"{where}: {error}") from None
    except BadPlugIn as error:
        raise InvalidTool(str(error)) from error.__cause__
    return found
