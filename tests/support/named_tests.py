"""The tests that pages of docs/ name, so that a whole run fails if one of them did not pass."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support import case_rows, conformance


def named() -> Mapping[str, frozenset[str]]:
    """By page, as `tests/….py::name`, without parameters."""
    return {"docs/cases.md": case_rows.load().tests, "docs/conformance.md": conformance.load().tests}
