"""Patterns mean what `fnmatch` says they mean, and cost what a pattern may cost."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.governance.glob import MAX_PATTERN, MAX_SINGLE, fault, matches

ODD = st.text(st.sampled_from("ab-[]!*?\\^.$\n\u00e9\U0001f600"), max_size=8)


@given(pattern=ODD, text=ODD)
@example(pattern="[!]-a]b", text="cb")
@example(pattern="[b-a]", text="b")
@example(pattern="[!b-a]", text="b")
def test_a_pattern_means_what_it_means_elsewhere(pattern: str, text: str) -> None:
    assert matches(pattern, text) == fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "fine"),
    [
        ("*", True),
        ("x" * MAX_PATTERN, True),
        ("?" * MAX_SINGLE, True),
        ("", False),
        ("x" * (MAX_PATTERN + 1), False),
        ("?" * MAX_SINGLE + "[a]", False),
    ],
)
def test_bounds_of_a_pattern(pattern: str, fine: bool) -> None:
    assert (fault(pattern) is None) == fine


def test_the_costliest_pattern_takes_time_in_proportion_to_the_text() -> None:
    pattern = "*a" + "?" * MAX_SINGLE + "b*" + "c*" * 80
    costs = []
    for size in (20_000, 200_000):
        text = "ab" * (size // 2)
        assert not matches(pattern, text)
        began = time.thread_time()
        for _ in range(5):
            matches(pattern, text)
        costs.append(time.thread_time() - began)
    assert costs[1] < 100 * costs[0]
