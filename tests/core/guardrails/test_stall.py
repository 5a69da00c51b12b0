"""Gaps between two checks."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.core.guardrails.base import Tail
from app.core.guardrails.rules.stall import StallRule
from tests.core.guardrails.texts import tails


@pytest.mark.parametrize(
    ("gap_ms", "options", "positions"),
    [
        (5_000, {}, []),
        (5_001, {}, [3, 6]),
        (200, {"max_gap_ms": 100}, [3, 6]),
        (60_000, {"max_gap_ms": 60_000}, []),
    ],
)
def test_a_gap_longer_than_allowed_is_told_where_text_goes_on(
    gap_ms: float, options: dict[str, int], positions: list[int]
) -> None:
    check = StallRule(options).start()
    told = [violation for tail in tails(["abc", "def", "ghi"], gap_ms) for violation in check.tail(tail)]
    assert [violation.position for violation in told] == positions
    assert {violation.severity for violation in told} <= {"warning"}
    assert not check.end("abcdefghi")


def test_what_came_before_the_first_text_is_no_gap() -> None:
    assert not StallRule().start().tail(Tail("abc", "abc", 0, 0, 1e9))


def test_checks_of_one_rule_have_their_own_clocks() -> None:
    rule = StallRule()
    first, second = rule.start(), rule.start()
    assert not first.tail(Tail("a", "a", 0, 0, 0))
    assert not second.tail(Tail("a", "a", 0, 0, 90_000))
    assert first.tail(Tail("ab", "ab", 1, 0, 90_000))


@pytest.mark.parametrize("options", [{"max_gap_ms": 0}, {"max_gap_ms": "5"}, {"gap": 1}])
def test_bad_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        StallRule(options)
