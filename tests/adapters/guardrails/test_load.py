"""Finding guardrails: real modules and real entry points, in a directory of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.adapters.guardrails.python import InvalidGuardrail, load_guardrails

MODULE = """
from app.adapters.guardrails.python import Guardrail

def judge(text, final):
    return None

def declared():
    yield Guardrail("one", judge)
    yield Guardrail("two", judge)

SINGLE = Guardrail("single", judge)
GUARDRAILS = [SINGLE]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def announce(folder: Path, entry: str) -> None:
    info = folder / "some_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[branchline.guardrails]\n{entry}\n")


def names(modules: list[str] | None = None) -> list[str]:
    return [guardrail.name for guardrail in load_guardrails(modules or [])]


def test_nothing_is_loaded_unasked() -> None:
    assert names() == []


def test_modules_offer_their_list(folder: Path) -> None:
    (folder / "listed_rules.py").write_text(MODULE)
    found = names(["listed_rules", "examples.guardrails"])
    assert found == ["single", "card_numbers", "ends_a_sentence"]


@pytest.mark.parametrize(
    ("leads_to", "expected"), [("", ["single"]), (":SINGLE", ["single"]), (":declared", ["one", "two"])]
)
def test_entry_points_lead_to_declarations(folder: Path, leads_to: str, expected: list[str]) -> None:
    (folder / "announced_rules.py").write_text(MODULE)
    announce(folder, f"all = announced_rules{leads_to}")
    assert names() == expected


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("no_list", "x = 1", "no list `GUARDRAILS`"),
        ("no_guardrail", "GUARDRAILS = [len]", "is no Guardrail"),
        ("no_module", "1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_loaded_is_named(folder: Path, name: str, source: str, words: str) -> None:
    (folder / f"{name}.py").write_text(source)
    with pytest.raises(InvalidGuardrail, match=words) as refused:
        load_guardrails([name])
    assert f"module {name!r}" in str(refused.value)
