"""How the pause before a retry grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.lifecycle.delays import Strategy, backoff_ms, with_retry_after


def pauses(
    strategy: Strategy, draw: float, count: int = 6, base: int = 1_000, cap: int = 10_000
) -> list[float]:
    """The pauses before the first retries, each draw the same."""
    out: list[float] = []
    for retries in range(count):
        last = out[-1] if out else 0
        pause = backoff_ms(
            strategy, retries=retries, base_ms=base, cap_ms=cap, last_ms=last, draw=lambda: draw
        )
        out.append(pause)
    return out


@pytest.mark.parametrize(
    ("strategy", "draw", "expected"),
    [
        (Strategy.EXPONENTIAL, 0.5, [1000, 2000, 4000, 8000, 10000, 10000]),
        (Strategy.LINEAR, 0.5, [1000, 2000, 3000, 4000, 5000, 6000]),
        (Strategy.FIXED, 0.5, [1000] * 6),
        (Strategy.FULL_JITTER, 0.0, [0] * 6),
        (Strategy.FULL_JITTER, 0.5, [500, 1000, 2000, 4000, 5000, 5000]),
        (Strategy.FIXED_JITTER, 0.0, [500, 1000, 2000, 4000, 5000, 5000]),
        (Strategy.FIXED_JITTER, 0.5, [750, 1500, 3000, 6000, 7500, 7500]),
        (Strategy.DECORRELATED, 0.0, [1000] * 6),
        (Strategy.DECORRELATED, 0.5, [2000, 3500, 5750, 9125, 10000, 10000]),
    ],
)
def test_pauses(strategy: Strategy, draw: float, expected: list[float]) -> None:
    assert pauses(strategy, draw) == expected


@pytest.mark.parametrize("strategy", Strategy)
def test_a_base_of_nothing_is_no_pause(strategy: Strategy) -> None:
    assert pauses(strategy, 0.9, base=0) == [0] * 6


def never() -> float:
    raise AssertionError("a draw was made")


@pytest.mark.parametrize("strategy", [Strategy.EXPONENTIAL, Strategy.LINEAR, Strategy.FIXED])
def test_only_jitter_draws(strategy: Strategy) -> None:
    draw: Callable[[], float] = never
    assert backoff_ms(strategy, retries=0, base_ms=1, cap_ms=9, last_ms=0, draw=draw) == 1


@given(
    strategy=st.sampled_from(Strategy),
    retries=st.integers(0, 10**9),
    base=st.integers(0, 10**7),
    cap=st.integers(0, 10**7),
    last=st.floats(0, 10**7),
    drawn=st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_never_negative_and_never_above_the_cap(
    strategy: Strategy, retries: int, base: int, cap: int, last: float, drawn: float
) -> None:
    pause = backoff_ms(strategy, retries=retries, base_ms=base, cap_ms=cap, last_ms=last, draw=lambda: drawn)
    assert 0 <= pause <= cap


@pytest.mark.parametrize(
    ("pause", "asked", "expected"),
    [(1500.4, None, 1500), (1500, 1000, 1500), (1500, 4000, 4000), (1500, 90_000, 60_000)],
    ids=["not asked", "asked for less", "asked for more", "asked for too much"],
)
def test_a_server_that_asks_for_more_is_heard_within_a_limit(
    pause: float, asked: int | None, expected: int
) -> None:
    assert with_retry_after(pause, asked, 60_000) == expected
