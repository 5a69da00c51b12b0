"""There is one way to a tool, and governance, hooks, records and history lie on it."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import ROOT

APP = ROOT / "app"


def modules_that_make(name: str) -> list[Path]:
    """The modules of the service in which something of this name is called by it."""
    return [
        path.relative_to(APP)
        for path in sorted(APP.rglob("*.py"))
        if any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
        )
    ]


def test_tools_are_called_from_one_place() -> None:
    # A runner of tools takes nothing but an `Invocation`: who makes none can call none.
    (maker,) = modules_that_make("Invocation")
    assert maker.parts[0] == "services"
