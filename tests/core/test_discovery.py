"""Extensions are found by the constant that they declare."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

import app.adapters.providers
from app.core.discovery import discover


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = tmp_path / "some_extensions"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "second.py").write_text("THING = 2\n")
    (folder / "first.py").write_text("THING = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("some_extensions")]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("some_extensions")


def test_every_module_is_found_in_alphabetical_order(package: ModuleType) -> None:
    assert list(discover(package, "THING").items()) == [("first", 1), ("second", 2)]


def test_a_module_without_the_constant_is_an_error_that_names_it(package: ModuleType) -> None:
    assert package.__file__ is not None
    Path(package.__file__).with_name("third.py").write_text("OTHER = 3\n")
    with pytest.raises(LookupError, match=r"some_extensions\.third declares no THING"):
        discover(package, "THING")


def test_the_providers_on_offer() -> None:
    assert sorted(discover(app.adapters.providers, "PROVIDER")) == [
        "anthropic",
        "bedrock",
        "gemini",
        "openai",
        "scripted",
    ]
