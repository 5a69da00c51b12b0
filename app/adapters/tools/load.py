"""Find the Python tools of this installation: entry points, and modules named in the settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.adapters.plugins import PluginKind, load_plugins
from app.adapters.tools.python import Tool
from app.adapters.tools.signature import InvalidTool

TOOLS: Final = PluginKind("branchline.tools", "TOOLS", Tool.of, InvalidTool)


def load_tools(modules: Iterable[str] = ()) -> list[Tool]:
    """The tools of all entry points, then those of `modules`, each of which has a list `TOOLS`.

    An entry point may lead to a module with `TOOLS`, to a `Tool`, to a function that is a tool, to a list of
    those, or to a generator function that yields them. Raises `InvalidTool` naming what could not be loaded.
    """
    return load_plugins(TOOLS, modules)
