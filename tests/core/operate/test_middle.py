"""By which middle a model is asked."""

from __future__ import annotations

import pytest

from app.core.errors import Invalid
from app.core.operate.middle import MiddleName, choose_middle


@pytest.mark.parametrize(
    ("named", "collects", "chosen"),
    [
        (None, False, "communicate"),
        (None, True, "run_and_collect"),
        ("communicate", False, "communicate"),
        ("run_and_collect", False, "run_and_collect"),
        ("run_and_collect", True, "run_and_collect"),
    ],
)
def test_the_kind_of_the_model_decides_where_nobody_does(
    named: MiddleName | None, collects: bool, chosen: str
) -> None:
    assert choose_middle(named, model="m", collects=collects) == chosen


def test_one_that_would_lose_messages_is_refused() -> None:
    with pytest.raises(Invalid) as refused:
        choose_middle("communicate", model="m", collects=True)
    assert [error.pointer for error in refused.value.errors] == ["/middle"]
