"""The pages that are made from the code say what the code says."""

from __future__ import annotations

import pytest

from tests.support.docs import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text("utf-8")
    assert written == PAGES[name](), "run `python -m tests.support.docs`"
