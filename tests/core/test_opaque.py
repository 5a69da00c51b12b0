"""An answer told again with what its provider wants back: everything once, in its order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.opaque import OpaqueBlock, filled, in_order


def told(text: str, calls: Sequence[str], *blocks: OpaqueBlock) -> list[str]:
    """The parts in words."""
    return [
        f"{part.text}{part.call or ''}{part.block.json if part.block else ''}"
        for part in in_order(text, calls, blocks)
    ]


@pytest.mark.parametrize(
    ("text", "calls", "blocks", "expected"),
    [
        ("", [], [], []),
        ("text", ["f"], [], ["text", "f"]),
        ("text", ["f"], [OpaqueBlock("<>")], ["<>", "text", "f"]),
        ("text", ["f"], [OpaqueBlock("<>", at=2)], ["te", "<>", "xt", "f"]),
        ("text", ["f", "g"], [OpaqueBlock("<>", at=4, calls=1)], ["text", "f", "<>", "g"]),
        ("text", ["f", "g"], [OpaqueBlock("<>", at=1, calls=1)], ["t", "f", "<>", "ext", "g"]),
        ("text", [], [OpaqueBlock("<>", at=1, span=2)], ["t", "ex<>", "t"]),
        ("text", ["f", "g"], [OpaqueBlock("<>", at=4, calls=1, of_call=True)], ["text", "f", "g<>"]),
        ("text", [], [OpaqueBlock("<>", at=4, of_call=True)], ["text"]),
    ],
)
def test_parts_stand_where_they_stood(
    text: str, calls: list[str], blocks: list[OpaqueBlock], expected: list[str]
) -> None:
    assert told(text, calls, *blocks) == expected


blocks = st.builds(
    OpaqueBlock,
    json=st.just("{}"),
    at=st.integers(0, 12),
    span=st.integers(0, 4),
    calls=st.integers(0, 4),
    of_call=st.booleans(),
)


@given(st.text("abc", max_size=8), st.lists(st.sampled_from("fgh"), max_size=3), st.lists(blocks, max_size=4))
def test_whatever_the_blocks_say_the_text_and_the_calls_come_once(
    text: str, calls: list[str], odd: list[OpaqueBlock]
) -> None:
    parts = list(in_order(text, calls, odd))
    assert "".join(part.text for part in parts) == text
    assert [part.call for part in parts if part.call is not None] == calls


def test_a_member_is_put_before_the_others() -> None:
    assert filled('{"b":1.50}', '"a":2') == '{"a":2,"b":1.50}'
    assert filled("{ }", '"a":2') == '{"a":2}'
