"""docs/cases.md tells of every case once, with what shows it."""

from __future__ import annotations

from tests.support.case_rows import KINDS, LATER, happened, load

FOUND = load()


def test_every_case_has_one_row_in_their_order() -> None:
    assert [row.id for row in FOUND.rows] == list(happened())
    assert {row.id[0] for row in FOUND.rows} == {*KINDS, *LATER}


def test_every_row_says_what_becomes_of_it_and_is_shown() -> None:
    for row in FOUND.rows:
        assert row.does, row.id
        assert row.tests, row.id
        assert len(set(row.tests)) == len(row.tests), row.id
        assert "|" not in row.does + row.differs + row.missing, row.id
        assert not (row.does + row.differs + row.missing).endswith("."), row.id


def test_what_has_to_hold_holds() -> None:
    assert not [row.id for kind in KINDS for row in FOUND.of(kind) if row.missing]
