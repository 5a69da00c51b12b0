"""The golden flows: what a stream's options and models lead to, as events and callbacks in exact order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.conftest import DATA

FLOWS: dict[str, Any] = {
    flow["name"]: flow
    for name in ("flows.json", "further_flows.json")
    for flow in json.loads((DATA / name).read_text("utf-8"))["flows"]
}

WORDS = ("*", "error", "state", "violation")
"""Expected values that stand for any."""


def fits(expected: Any, found: Any) -> bool:
    """Whether a value is what a flow expects; objects may have more members."""
    if isinstance(expected, str) and expected in WORDS:
        return True
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and fits(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(fits, expected, found))
    return bool(expected == found) and type(expected) is type(found)


def assert_walked(flow: dict[str, Any], lines: Sequence[Sequence[Any]]) -> None:
    """Whether `lines`, pairs of type and meta or "->callback" and arguments, are exactly the flow's."""
    for place, (expected, found) in enumerate(zip(flow["expect"], lines, strict=False)):
        assert found[0] == expected[0], f"step {place}: {[line[0] for line in lines]}"
        assert fits(expected[1], found[1]), f"step {place}, {found[0]}: {found[1]} is not {expected[1]}"
    assert [line[0] for line in lines] == [line[0] for line in flow["expect"]]
