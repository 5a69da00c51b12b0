"""Finding tools: real modules and real entry points, in a directory of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.adapters.tools.load import load_tools
from app.adapters.tools.python import Tool
from app.adapters.tools.signature import InvalidTool

Write = Callable[[str, str], None]

MODULE = '''
from app.adapters.tools.python import Tool

def double(n: int) -> int:
    """Double a number."""
    return 2 * n

def declared():
    yield Tool("one", double)
    yield double

SINGLE = Tool("single", double)
TOOLS = [Tool("listed", double), double]
'''


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a file into a directory on the path; what is imported from there is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write_file(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    yield write_file
    for name in [
        name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))
    ]:
        del sys.modules[name]


def announce(write: Write, entries: str) -> None:
    write("plug_in-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: plug-in\nVersion: 1.0\n")
    write("plug_in-1.0.dist-info/entry_points.txt", f"[branchline.tools]\n{entries}\n")


def names(tools: list[Tool]) -> list[str]:
    return [tool.name for tool in tools]


def test_nothing_is_loaded_unasked() -> None:
    assert load_tools() == []


def test_modules_offer_their_list(write: Write) -> None:
    write("my_tools.py", MODULE)
    assert names(load_tools(["my_tools", "examples.tools"])) == ["listed", "double", "add", "weather"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("all = plugged", ["listed", "double"]),
        ("all = plugged:TOOLS", ["listed", "double"]),
        ("all = plugged:SINGLE", ["single"]),
        ("all = plugged:double", ["double"]),
        ("all = plugged:declared", ["one", "double"]),
        ("b = plugged:SINGLE\na = plugged:double", ["double", "single"]),
    ],
)
def test_entry_points_may_lead_to_anything_that_declares_tools(
    write: Write, entry: str, expected: list[str]
) -> None:
    write("plugged.py", MODULE)
    announce(write, entry)
    assert names(load_tools()) == expected


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("TOOLS = [3]", "neither a Tool nor a function"),
        ("TOOLS = 3", "neither a Tool nor a function"),
        ("x = 1", "no list `TOOLS`"),
        ("1 / 0", "ZeroDivisionError"),
        ("def TOOLS():\n    yield 1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_loaded_is_named(write: Write, source: str, words: str) -> None:
    write("broken.py", source)
    with pytest.raises(InvalidTool, match=words) as refused:
        load_tools(["broken"])
    assert "module 'broken'" in str(refused.value)
    announce(write, "bad = broken")
    with pytest.raises(InvalidTool, match=words) as refused:
        load_tools()
    assert "entry point 'bad'" in str(refused.value)


def test_a_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidTool, match="module 'no_such_module'"):
        load_tools(["no_such_module"])
