"""Remember what was read for a short while, so that the hot path does not ask the database each time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from app.ports.ambient import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """At most `most` values, each for `ms` milliseconds; the oldest gives way."""

    def __init__(self, clock: Clock, ms: float, *, most: int) -> None:
        self._clock = clock
        self._ms = ms
        self._most = most
        self._held: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> tuple[V] | None:
        """The value, in a tuple because it may be None itself; None when it is not remembered."""
        found = self._held.get(key)
        if found is None or found[0] <= self._clock.mono_ms():
            return None
        return (found[1],)

    def put(self, key: K, value: V) -> None:
        """Remember it from now on."""
        self._held[key] = (self._clock.mono_ms() + self._ms, value)
        self._held.move_to_end(key)
        if len(self._held) > self._most:
            self._held.popitem(last=False)

    def forget_all(self) -> None:
        """Remember nothing."""
        self._held.clear()
