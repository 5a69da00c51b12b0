"""How long to wait before a model is asked again; randomness is an argument."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import assert_never


class Strategy(StrEnum):
    """How the pause grows with the number of retries made."""

    EXPONENTIAL = "exponential"
    """base · 2ⁿ, at most the cap."""
    LINEAR = "linear"
    """base · (n + 1), at most the cap."""
    FIXED = "fixed"
    """base, at most the cap."""
    FULL_JITTER = "full-jitter"
    """Anything up to the exponential pause."""
    FIXED_JITTER = "fixed-jitter"
    """Half of the exponential pause, and anything up to the other half."""
    DECORRELATED = "decorrelated"
    """Anything between the base and three times the last pause, at most the cap."""


def backoff_ms(
    strategy: Strategy,
    *,
    retries: int,
    base_ms: int,
    cap_ms: int,
    last_ms: float,
    draw: Callable[[], float],
) -> float:
    """The pause before the next retry, in milliseconds.

    `retries` were made before, 0 for the first; `last_ms` was the pause before the last of them, 0 if there
    was none. `draw` gives a number from 0 up to, but not including, 1; it is called once by the jittered
    strategies and not at all by the others.
    """
    # An exponent without bound would make an integer without bound.
    exponential: int = min(base_ms * 2 ** min(retries, 64), cap_ms)
    match strategy:
        case Strategy.EXPONENTIAL:
            return exponential
        case Strategy.LINEAR:
            return min(base_ms * (retries + 1), cap_ms)
        case Strategy.FIXED:
            return min(base_ms, cap_ms)
        case Strategy.FULL_JITTER:
            return draw() * exponential
        case Strategy.FIXED_JITTER:
            return exponential / 2 + draw() * exponential / 2
        case Strategy.DECORRELATED:
            upper = 3 * max(last_ms, base_ms)
            return min(base_ms + draw() * (upper - base_ms), cap_ms)
        case _:
            assert_never(strategy)


def with_retry_after(pause_ms: float, retry_after_ms: int | None, limit_ms: int) -> int:
    """The pause in whole milliseconds, no shorter than the server asked for, within a limit."""
    return max(round(pause_ms), min(retry_after_ms or 0, limit_ms))
