"""What one process may let in of the requests of a minute, without asking the others for each.

Times are milliseconds of any clock that does not go backwards; nothing here waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

PART: Final = 20
"""A process asks for this part of a minute's requests at a time…"""
KEEP: Final = 8
"""…and is given this part of what is left at most, so that the last ones are not with the wrong process."""
AGAIN_MS: Final = 1_000.0
"""How long a process that was given nothing refuses requests without asking again."""


class Spent(Enum):
    """Whether a request may be let in."""

    YES = "yes"
    NO = "no"
    ASK = "ask"
    """A further part has to be asked for first."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a process was given."""

    minute: int
    """Which minute it is for; grows."""
    quota: int
    """How many requests all processes may let in during the minute."""
    granted: int
    taken: int
    """How many were given to processes so far, these among them."""
    ends_in_ms: float
    """How long the minute still took when it was given."""


class Share:
    """One process's part of the requests that a key or a project may make in a minute."""

    def __init__(self, quota: int) -> None:
        """`quota` is what is known of the limit before anything was granted."""
        self.quota = quota
        self.waiting = 0
        """Requests that wait for the next grant."""
        self._minute = -1
        self._own = 0
        """What was granted and neither used nor given back."""
        self._taken = 0
        self._ends_ms = float("-inf")
        self._again_ms = float("-inf")
        self._is_idle = False

    def spend(self, now_ms: float) -> Spent:
        """Let a request in, if there is something left for it."""
        if now_ms >= self._ends_ms:
            return Spent.ASK
        self._is_idle = False
        if self._own:
            self._own -= 1
            return Spent.YES
        return Spent.NO if now_ms < self._again_ms else Spent.ASK

    def unspend(self) -> None:
        """A request that was let in is refused after all."""
        self._own += 1

    def wanted(self) -> int:
        """How many to ask for."""
        return max(1, self.quota // PART, self.waiting)

    def add(self, grant: Grant, asked_ms: float) -> None:
        """Have what was granted. `asked_ms` is when it was asked for: its end is never taken for later."""
        if grant.minute != self._minute:
            self._minute, self._own, self._ends_ms = grant.minute, 0, float("-inf")
        self.quota, self._taken = grant.quota, grant.taken
        self._own += grant.granted
        self._ends_ms = max(self._ends_ms, asked_ms + grant.ends_in_ms)
        self._again_ms = asked_ms + AGAIN_MS if not grant.granted else float("-inf")

    def rest(self) -> tuple[int, int] | None:
        """The minute, and what is to be given back of it: all, when nothing was used since the last call."""
        was_idle, self._is_idle = self._is_idle, True
        if not was_idle or not self._own:
            return None
        given, self._own = self._own, 0
        self._taken -= given
        return self._minute, given

    def is_over(self, now_ms: float) -> bool:
        """Whether it can be forgotten."""
        return now_ms >= self._ends_ms and not self.waiting

    @property
    def used(self) -> int:
        """Requests of the minute that were let in, as far as this process knows: what other processes hold
        counts as used.
        """
        return max(self._taken - self._own, 0)

    def resets_s(self, now_ms: float) -> float:
        """Seconds until the minute ends."""
        return max(self._ends_ms - now_ms, 0.0) / 1_000
