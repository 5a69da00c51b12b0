"""Pages of docs/ name only tests that there are, and that are run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.named_tests import named
from tests.support.ran import Ran

TESTS = sorted(frozenset().union(*named().values()))
SKIPPING = {"skip", "skipif", "xfail", "importorskip"}


@cache
def functions(path: str) -> dict[str, ast.AST]:
    """The tests of a file by name, and under "" what counts for all of them."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    found: dict[str, ast.AST] = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    marks = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and any(ast.unparse(t) == "pytestmark" for t in node.targets)
    ]
    return {**found, "": ast.Module(list(marks), [])}


def words(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr


@pytest.mark.parametrize("test", TESTS)
def test_a_named_test_exists_and_is_not_skipped(test: str) -> None:
    path, _, name = test.partition("::")
    assert name in functions(path)
    assert SKIPPING.isdisjoint([*words(functions(path)[name]), *words(functions(path)[""])])


def test_one_that_was_skipped_or_left_out_is_missing() -> None:
    ran = Ran()
    ran.hear("a.py::passed", "call", "passed")
    ran.hear("a.py::varied[1]", "call", "passed")
    ran.hear("a.py::half[1]", "call", "passed")
    ran.hear("a.py::half[2]", "setup", "skipped")
    ran.hear("a.py::only_set_up", "setup", "passed")
    named = ["passed", "varied", "half", "only_set_up", "unheard_of"]
    missing = ran.missing(f"a.py::{name}" for name in named)
    assert missing == ["a.py::half", "a.py::only_set_up", "a.py::unheard_of"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [([], 1), (["-n", "2"], 1), (["-k", "one"], 0), (["test_one.py"], 0), (["--deselect", "test_two.py"], 0)],
    ids=["whole", "whole, by two processes", "by keyword", "by path", "without one"],
)
def test_only_a_whole_run_has_to_have_run_them(tmp_path: Path, arguments: list[str], status: int) -> None:
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.ran", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert ("not run" in done.stdout) is bool(status)
