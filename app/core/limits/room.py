"""Whether a model may be asked now: counts and rates, a pause that its server asked for, a circuit breaker.

Times are milliseconds of any clock that does not go backwards; nothing here waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.core.limits.options import BreakerLimits, ModelLimits

MINUTE_MS: Final = 60_000.0


class Circuit(StrEnum):
    """The state of a breaker."""

    CLOSED = "closed"
    """The model is asked."""
    OPEN = "open"
    """It has failed too often: it is left alone."""
    HALF_OPEN = "half_open"
    """One attempt is under way that shows whether it is back: it is when its answer begins."""


class Outcome(StrEnum):
    """What an attempt said about the model."""

    WELL = "well"
    """It answers."""
    FAILED = "failed"
    """It is out of order."""
    NOTHING = "nothing"
    """Neither: the request was at fault, or it was given up."""


@dataclass(frozen=True, slots=True)
class Later:
    """Not now."""

    at_ms: float | None
    """When to ask again; None is when another attempt has ended."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Not at all for now: the circuit is open."""

    for_ms: float
    """How long still, as things stand."""


class Breaker:
    """Opens after failures in a row, and lets one attempt through when it has cooled down."""

    def __init__(self, limits: BreakerLimits) -> None:
        self._limits = limits
        self.state = Circuit.CLOSED
        self.failures = 0
        """In a row."""
        self.until_ms = 0.0
        """Until when it is open."""

    def refusal(self, now_ms: float) -> Broken | None:
        """Why the model is not asked now, if it is not."""
        match self.state:
            case Circuit.CLOSED:
                return None
            case Circuit.OPEN if now_ms >= self.until_ms:
                return None
            case Circuit.OPEN:
                return Broken(self.until_ms - now_ms)
            case Circuit.HALF_OPEN:
                return Broken(0.0)

    def begin(self) -> None:
        """An attempt begins that `refusal` has nothing against."""
        if self.state is Circuit.OPEN:
            self.state = Circuit.HALF_OPEN

    def answer(self) -> None:
        """An attempt has begun to be answered: the model is back, but not yet beyond doubt.

        A single failure opens the circuit again until an attempt has ended well.
        """
        if self.state is Circuit.HALF_OPEN:
            self.state = Circuit.CLOSED

    def end(self, outcome: Outcome, now_ms: float) -> None:
        """An attempt has ended."""
        match outcome:
            case Outcome.WELL:
                self.state, self.failures = Circuit.CLOSED, 0
            case Outcome.FAILED:
                self.failures += 1
                # One that began before the circuit opened does not keep it open for longer.
                if self.state is Circuit.HALF_OPEN or (
                    self.state is Circuit.CLOSED and self.failures >= self._limits.failures
                ):
                    self.state, self.until_ms = Circuit.OPEN, now_ms + self._limits.cooldown_ms
            case Outcome.NOTHING if self.state is Circuit.HALF_OPEN:
                # It showed nothing: the next one may.
                self.state, self.until_ms = Circuit.OPEN, now_ms


class Bucket:
    """A rate per minute: full at first, and filled up steadily to a minute's worth. It may be overdrawn."""

    def __init__(self, per_minute: int, now_ms: float) -> None:
        self._per_minute = float(per_minute)
        self._level = self._per_minute
        self._at_ms = now_ms

    def _fill(self, now_ms: float) -> None:
        gained = (now_ms - self._at_ms) * self._per_minute / MINUTE_MS
        self._level, self._at_ms = min(self._per_minute, self._level + gained), now_ms

    def is_full(self, now_ms: float) -> bool:
        """Whether there is a minute's worth in it."""
        self._fill(now_ms)
        return self._level >= self._per_minute

    def ready_at(self, amount: float, now_ms: float) -> float:
        """When `amount` can be taken; `now_ms` or before is at once."""
        self._fill(now_ms)
        lacking = amount - self._level
        return now_ms if lacking <= 0 else now_ms + lacking * MINUTE_MS / self._per_minute

    def take(self, amount: float, now_ms: float) -> None:
        """Take it, whether it is there or not."""
        self._fill(now_ms)
        self._level -= amount


class Room:
    """The limits of one model, and how far they are used."""

    def __init__(self, limits: ModelLimits, now_ms: float) -> None:
        self.limits = limits
        self.under_way = 0
        """Attempts that have begun and not ended."""
        self._paused_until_ms = now_ms
        self._requests = limits.requests_per_minute and Bucket(limits.requests_per_minute, now_ms)
        self._tokens = limits.tokens_per_minute and Bucket(limits.tokens_per_minute, now_ms)
        self.breaker = None if limits.breaker is None else Breaker(limits.breaker)

    def begin(self, now_ms: float) -> Later | Broken | None:
        """Begin an attempt, or say what is in its way. Every one that begins has to `end`."""
        if self.breaker is not None and (broken := self.breaker.refusal(now_ms)):
            return broken
        if self.limits.concurrency is not None and self.under_way >= self.limits.concurrency:
            return Later(None)
        ready_ms = self._paused_until_ms
        if self._requests:
            ready_ms = max(ready_ms, self._requests.ready_at(1, now_ms))
        if self._tokens:
            ready_ms = max(ready_ms, self._tokens.ready_at(1, now_ms))
        if ready_ms > now_ms:
            return Later(ready_ms)
        self.under_way += 1
        if self._requests:
            self._requests.take(1, now_ms)
        if self.breaker is not None:
            self.breaker.begin()
        return None

    def is_fresh(self, now_ms: float) -> bool:
        """Whether nobody is in it, and it is like a new one."""
        if self.under_way or self._paused_until_ms > now_ms:
            return False
        if self.breaker is not None and self.breaker.failures:
            return False
        return all(bucket.is_full(now_ms) for bucket in (self._requests, self._tokens) if bucket)

    def pause(self, for_ms: float, now_ms: float) -> None:
        """The server asked not to be asked for a while."""
        self._paused_until_ms = max(self._paused_until_ms, now_ms + for_ms)

    def end(self, outcome: Outcome, now_ms: float, *, tokens: int = 0) -> None:
        """An attempt has ended, and used so many tokens."""
        self.under_way -= 1
        if self._tokens:
            self._tokens.take(tokens, now_ms)
        if self.breaker is not None:
            self.breaker.end(outcome, now_ms)
