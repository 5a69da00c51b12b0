"""What the service does in each case of tests/data/cases.jsonl, and the page that is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.markdown import named_tests, table

DATA: Final = Path(__file__).resolve().parents[1] / "data"

HEAD: Final = """# Failures from the field

What happened to others, and what this service does when it happens here. The cases stand in
`tests/data/cases.jsonl`, each with what was sent and what has to come of it; what is said here of them in
`tests/data/cases_shown.json`. Their words are not always ours:
[0020](decisions/0020-failures-from-the-field.md) translates them. A full run of the tests fails if one that
is named here did not pass.

Every case has a server of the tests play what was sent, and is judged by what a client of the running service
gets. Where more is asked for than can be seen from there, tests nearer to the fault are named beside."""

KINDS: Final[Mapping[str, str]] = {
    "P": "Streams of chat completions",
    "A": "Streams of Anthropic's Messages",
    "J": "JSON that models write",
    "S": "JSON Schemas that clients send",
    "T": "Arguments of tools",
    "H": "Tools over HTTP and MCP",
}
"""What has to hold for every case, by the letter of the ids."""

LATER: Final[Mapping[str, str]] = {"V": "Streams to clients, and processes", "R": "Answers that break off"}
"""What need not yet."""


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case, and what becomes of it."""

    id: str
    happened: str
    """To others."""
    does: str
    """What the service does."""
    differs: str
    """In what it keeps to other words than the case's; empty where in nothing."""
    missing: str
    """What does not hold yet or is not shown; empty where nothing."""
    tests: tuple[str, ...]
    """As `tests/….py::name`, without parameters."""


@dataclass(frozen=True, slots=True)
class CaseRows:
    """All of them."""

    rows: tuple[CaseRow, ...]

    @property
    def tests(self) -> frozenset[str]:
        """Every test that is named."""
        return frozenset(test for row in self.rows for test in row.tests)

    def of(self, letter: str) -> tuple[CaseRow, ...]:
        """Those of one kind."""
        return tuple(row for row in self.rows if row.id.startswith(letter))


def happened() -> dict[str, str]:
    """What happened in each case, by id."""
    # By line feeds only: some cases hold other characters that Python takes for line ends.
    lines = (DATA / "cases.jsonl").read_text("utf-8").strip().split("\n")
    return {case["id"]: case["what_happened"] for case in map(json.loads, lines)}


def load() -> CaseRows:
    """Read tests/data/cases_shown.json."""
    told = happened()
    data = json.loads((DATA / "cases_shown.json").read_text("utf-8"))
    return CaseRows(tuple(_row(row, told.get(row["id"], "")) for row in data["rows"]))


def _row(row: Mapping[str, Any], told: str) -> CaseRow:
    return CaseRow(
        row["id"], told, row["does"], row.get("differs", ""), row.get("missing", ""), tuple(row["tests"])
    )


def page(notice: str) -> str:
    """The text of docs/cases.md."""
    found = load()
    parts = [notice, HEAD, *(f"## {title}\n\n{_table(found.of(kind))}" for kind, title in KINDS.items())]
    later = [row for kind in LATER for row in found.of(kind)]
    holds = sum(not row.missing for row in later)
    parts.append(
        f"## Further cases\n\nOf {len(later)} more {holds} hold; of the others it is said what is missing."
    )
    parts += [f"### {title}\n\n{_table(found.of(kind))}" for kind, title in LATER.items()]
    return "\n\n".join(parts) + "\n"


def _table(rows: Iterable[CaseRow]) -> str:
    return table(
        ["Case", "What happened", "What the service does", "Shown by"],
        ([row.id, _plain(row.happened), _outcome(row), named_tests(row.tests)] for row in rows),
    )


def _outcome(row: CaseRow) -> str:
    notes = [row.does + "."]
    if row.differs:
        notes.append(f"**Otherwise:** {row.differs}.")
    if row.missing:
        notes.append(f"**Not yet:** {row.missing}.")
    return " ".join(notes)


def _plain(text: str) -> str:
    """Words that say what they say in a table of Markdown too."""
    for sign in "\\|*_<`$":
        text = text.replace(sign, f"\\{sign}")
    return text
