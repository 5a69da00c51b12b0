"""What befalls the world, and when: drawn from a seed, so that it can be repeated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

LEASE_MS = 2_000
"""Of the replicas, so that what is lost is taken over soon."""


class Kind(StrEnum):
    """What can happen to a replica, or to the database."""

    KILL = "kill"
    PAUSE_PAST_LEASE = "pause past lease"
    PAUSE_WITHIN_LEASE = "pause within lease"
    STOP = "stop"
    DATABASE_RESTART = "database restart"
    DATABASE_CRASH = "database crash"


Role = Literal["all", "api", "worker"]
"""What a replica does; see the setting of this name."""

_CASTS: Sequence[tuple[Role, ...]] = (
    ("all", "all", "all"),
    ("api", "worker", "worker"),
    ("api", "api", "worker"),
    ("api", "worker", "all"),
)

OF_DATABASE = frozenset({Kind.DATABASE_RESTART, Kind.DATABASE_CRASH})

_DECK: Sequence[Kind] = (
    *(Kind.KILL,) * 4,
    *(Kind.PAUSE_PAST_LEASE,) * 3,
    *(Kind.PAUSE_WITHIN_LEASE, Kind.STOP, Kind.DATABASE_RESTART, Kind.DATABASE_CRASH),
)
"""As often as each comes; every one of them before any comes again."""
_LEASES = {Kind.PAUSE_PAST_LEASE: (1.2, 2.5), Kind.PAUSE_WITHIN_LEASE: (0.1, 0.5)}
"""How long a pause lasts, in leases."""
_GAP_S = (0.5, 3.5)
_AWAY_S = (0.1, 1.5)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that happens."""

    at_s: float
    """Seconds after the beginning."""
    kind: Kind
    replica: int | None
    """Which one is hit, from 0; None for the database."""
    for_s: float
    """How long what was hit is away, or stands still."""

    def __str__(self) -> str:
        where = "" if self.replica is None else f" of replica {self.replica}"
        return f"{self.at_s:7.2f} s  {self.kind}{where}, for {self.for_s:.2f} s"


def roles(seed: str) -> tuple[Role, ...]:
    """The roles of three replicas; one of them answers clients at least, and one executes."""
    draw = random.Random(f"roles {seed}")
    cast = draw.choice(_CASTS)
    return tuple(draw.sample(cast, len(cast)))


def schedule(seed: str, seconds: float, replicas: int) -> list[Trouble]:
    """The troubles of so many seconds, in order; the same for the same seed."""
    draw = random.Random(f"troubles {seed}")
    found: list[Trouble] = []
    deck: list[Kind] = []
    at_s = draw.uniform(*_GAP_S)
    while at_s < seconds:
        if not deck:
            deck = draw.sample(_DECK, len(_DECK))
        kind = deck.pop()
        replica = None if kind in OF_DATABASE else draw.randrange(replicas)
        low, high = _LEASES.get(kind, (0.0, 0.0))
        for_s = draw.uniform(low, high) * LEASE_MS / 1000 if kind in _LEASES else draw.uniform(*_AWAY_S)
        found.append(Trouble(round(at_s, 2), kind, replica, round(for_s, 2)))
        at_s += draw.uniform(*_GAP_S)
    return found
