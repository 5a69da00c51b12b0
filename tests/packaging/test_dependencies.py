"""What the code imports is locked, so that a fresh clone has it and no machine's own installs hide a gap."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"app", "tests", "benchmarks", "examples", "migrations"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(path: Path) -> Iterator[str]:
    """Each top-level module that the file imports, at its head or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module.partition(".")[0]


def third_party(*folders: str) -> set[str]:
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {name for path in files for name in imported(path)} - set(sys.stdlib_module_names) - OURS


def declared(requirements: Iterable[str]) -> set[str]:
    names = (re.match(r"[A-Za-z0-9._-]+", each) for each in requirements)
    return {normalized(name.group()) for name in names if name is not None}


def locked(file: str) -> set[str]:
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    return declared(line for line in lines if "==" in line and not line.startswith((" ", "#")))


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = declared(
    [*PROJECT["project"]["dependencies"], *chain(*PROJECT["project"]["optional-dependencies"].values())]
)
DEVELOPMENT = RUNTIME | declared(chain(*PROJECT["dependency-groups"].values()))
DISTRIBUTIONS = packages_distributions()


@pytest.mark.parametrize(
    ("folders", "file"),
    [(("app", "migrations", "examples"), "runtime.txt"), (("tests", "benchmarks"), "dev.txt")],
)
def test_every_import_is_locked(folders: tuple[str, ...], file: str) -> None:
    installed = locked(file)
    missing = {
        module
        for module in third_party(*folders)
        if not installed & {normalized(each) for each in DISTRIBUTIONS.get(module, [module])}
    }
    assert missing == set()


@pytest.mark.parametrize(
    ("file", "names"),
    [("runtime.txt", RUNTIME), ("dev.txt", DEVELOPMENT)],
)
def test_every_declared_package_is_locked(file: str, names: set[str]) -> None:
    assert names - locked(file) == set()
