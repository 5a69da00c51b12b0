"""Which messages a caller may have a model shown."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.core.errors import Invalid
from app.core.operate.progression import progression_of

IDS = [UUID(int=at) for at in range(1, 7)]
PAIRS = {IDS[2]: IDS[3], IDS[3]: IDS[2]}


@pytest.mark.parametrize("places", [[], [0], [0, 5], [1, 2, 3], [0, 1, 2, 3, 4, 5]])
def test_a_progression_names_messages_in_order(places: list[int]) -> None:
    ids = tuple(IDS[place] for place in places)
    assert progression_of([str(id) for id in ids], IDS, PAIRS) == ids


@pytest.mark.parametrize(
    ("asked", "faults"),
    [
        (["x"], [("/progression/0", "unknown_message")]),
        ([str(UUID(int=99))], [("/progression/0", "unknown_message")]),
        ([str(IDS[0]), str(IDS[0])], [("/progression/1", "out_of_order")]),
        ([str(IDS[4]), str(IDS[1]), str(IDS[5])], [("/progression/1", "out_of_order")]),
        ([str(IDS[2])], [("/progression/0", "half_a_call")]),
        ([str(IDS[1]), str(IDS[3])], [("/progression/1", "half_a_call")]),
        (
            ["x", str(IDS[3]), "y"],
            [
                ("/progression/0", "unknown_message"),
                ("/progression/1", "half_a_call"),
                ("/progression/2", "unknown_message"),
            ],
        ),
    ],
)
def test_what_cannot_stand_in_a_progression(asked: list[str], faults: list[tuple[str, str]]) -> None:
    with pytest.raises(Invalid) as refused:
        progression_of(asked, IDS, PAIRS)
    assert [(fault.pointer, fault.code) for fault in refused.value.errors] == faults
