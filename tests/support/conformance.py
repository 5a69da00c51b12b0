"""What is kept, what is replaced, and which tests show it: the rows, and the page that is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tests.support.markdown import named_tests, table

DATA: Final = Path(__file__).resolve().parents[1] / "data"

HEAD: Final = """# Conformance

This service carries out two architecture decision records: ADR-0012, the execution of actions and the life
of their events, and ADR-0022, the operate coordinator. They tell what has shipped, faults included. Here is
what each of their bullets says in short, whether it is kept or replaced, and the tests that show it. An id is
that of the record, of the decision in it, and of the bullet of that decision.

The rows stand in `tests/data/conformance.json`. A full run of the tests fails if one that is named here did
not pass."""

BEHAVIOURS: Final = """## Behaviours

What callers of act and operate rely on, seen from outside; those with a star are the core of it. Where one is
replaced, the tests show what takes its place."""

GAPS: Final = """## Beyond both

What neither says enough about."""


@dataclass(frozen=True, slots=True)
class Row:
    """One statement and its tests."""

    id: str
    says: str
    tests: tuple[str, ...]
    """As `tests/….py::name`, without parameters."""
    verdict: Literal["kept", "replaced", ""] = ""
    how: str = ""
    """By what it is replaced, or what is added to it."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """All rows."""

    bullets: tuple[Row, ...]
    behaviours: tuple[Row, ...]
    gaps: tuple[Row, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """Of all tables."""
        return (*self.bullets, *self.behaviours, *self.gaps)

    @property
    def tests(self) -> frozenset[str]:
        """Every test that is named."""
        return frozenset(test for row in self.rows for test in row.tests)


def load() -> Conformance:
    """Read tests/data/conformance.json."""
    data = json.loads((DATA / "conformance.json").read_text("utf-8"))
    return Conformance(
        tuple(_row(row["id"], row) for row in data["bullets"]),
        tuple(_row(f"{row['number']}{' *' if row['core'] else ''}", row) for row in data["behaviours"]),
        tuple(_row("", row) for row in data["gaps"]),
    )


def _row(id: str, row: Mapping[str, Any]) -> Row:
    return Row(id, row["says"], tuple(row["tests"]), row.get("verdict", ""), row.get("how", ""))


def page(notice: str) -> str:
    """The text of docs/conformance.md."""
    found = load()
    kept = sum(row.verdict == "kept" for row in found.bullets)
    parts = [
        notice,
        HEAD,
        f"Of {len(found.bullets)} bullets {kept} are kept and {len(found.bullets) - kept} replaced.",
        *(
            f"## {title}\n\n" + _table("Bullet", (row for row in found.bullets if row.id.startswith(record)))
            for record, title in (("0012", "ADR-0012"), ("0022", "ADR-0022"))
        ),
        BEHAVIOURS,
        _table("No.", found.behaviours),
        GAPS,
        table(["What", "Shown by"], ([row.says, named_tests(row.tests)] for row in found.gaps)),
    ]
    return "\n\n".join(parts) + "\n"


def _table(first: str, rows: Iterable[Row]) -> str:
    return table(
        [first, "What it says", "Here", "Shown by"],
        ([row.id, row.says, _here(row), named_tests(row.tests)] for row in rows),
    )


def _here(row: Row) -> str:
    return f"**{row.verdict}**" + (f": {row.how}" if row.how else "")
