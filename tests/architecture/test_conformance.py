"""docs/conformance.md names every bullet once, with what shows it."""

from __future__ import annotations

import json

from tests.conftest import DATA
from tests.support.conformance import load

FOUND = load()


def test_every_bullet_has_one_row() -> None:
    ids = json.loads((DATA / "adr_bullets.json").read_text("utf-8"))
    assert len(ids) == len(set(ids)) == 98
    assert [row.id for row in FOUND.bullets] == ids


def test_every_behaviour_has_one_row() -> None:
    assert [int(row.id.removesuffix(" *")) for row in FOUND.behaviours] == list(range(1, 52))


def test_every_row_is_decided_and_shown() -> None:
    for row in (*FOUND.bullets, *FOUND.behaviours):
        assert row.verdict in ("kept", "replaced"), row.id
        assert row.how or row.verdict == "kept", f"{row.id} is replaced by what?"
    for row in FOUND.rows:
        assert row.tests, row.says
        assert len(set(row.tests)) == len(row.tests), row.says
        assert "|" not in row.says + row.how
