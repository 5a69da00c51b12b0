"""Finding handlers: real modules and real entry points, in a directory of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.handlers.declare import InvalidHandler
from app.adapters.handlers.load import load_handlers

MODULE = """
from app.adapters.handlers.declare import Handlers

class Alert:
    def on_error(self, error, will_retry, will_fallback):
        pass

def declared():
    yield Alert()

HANDLERS = [Handlers(on_token=print), Alert()]
ALERT = Alert()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path; what is imported from there is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("alerts", "broken"):
        sys.modules.pop(name, None)


def announce(here: Path, entry: str) -> None:
    folder = here / "plug_in-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-in\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[branchline.handlers]\n{entry}\n")


def test_nothing_is_loaded_unasked() -> None:
    assert load_handlers() == []


def test_modules_offer_their_list(here: Path) -> None:
    (here / "alerts.py").write_text(MODULE)
    found = load_handlers(["alerts"])
    assert [(name, list(methods)) for name, methods in found] == [
        ("Handlers", ["on_token"]),
        ("Alert", ["on_error"]),
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("all = alerts", ["Handlers", "Alert"]),
        ("one = alerts:ALERT", ["Alert"]),
        ("some = alerts:HANDLERS", ["Handlers", "Alert"]),
        ("made = alerts:declared", ["Alert"]),
    ],
)
def test_entry_points_may_lead_to_anything_that_declares_handlers(
    here: Path, entry: str, expected: list[str]
) -> None:
    (here / "alerts.py").write_text(MODULE)
    announce(here, entry)
    assert [name for name, _ in load_handlers()] == expected


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("HANDLERS = [3]", "no method named after a callback"),
        ("x = 1", "no list `HANDLERS`"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_loaded_is_named(here: Path, source: str, words: str) -> None:
    (here / "broken.py").write_text(source)
    with pytest.raises(InvalidHandler, match=words) as refused:
        load_handlers(["broken"])
    assert "module 'broken'" in str(refused.value)
    announce(here, "bad = broken")
    with pytest.raises(InvalidHandler, match=words) as refused:
        load_handlers()
    assert "entry point 'bad'" in str(refused.value)
