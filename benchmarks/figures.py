"""How much is measured, and what one round of a measurement gives."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Figures = dict[str, float]
"""What one round gave, by the names that `report` knows."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Counts of one round, and the number of rounds."""

    rounds: int = 7
    one_client: int = 40
    many_clients: int = 384
    first_tokens: int = 30
    streams: int = 64
    paced: int = 32
    acts: int = 200
    batches: int = 40
    turns: int = 205
    branch: int = 10_000
    """Messages of the branch whose next prompt is made."""
    prompts: int = 15
    hangups: int = 20
    floor: int = 60
    lengths: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Tokens of one stream, for the lifecycle core."""
    fed_at_least: int = 50_000
    """Tokens or chunks over which a part that takes microseconds is measured."""


FULL = Scale()
QUICK = Scale(rounds=2)


def p50(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """The value that one in a hundred exceeds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
