"""Time and identifiers that a test controls."""

from __future__ import annotations

from uuid import UUID

NOW_MS = 1_796_000_000_000


class FakeClock:
    """Time stands still until it is moved."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.now_ms

    def mono_ms(self) -> float:
        """The same clock."""
        return float(self.now_ms)


class CountingIds:
    """UUIDv7 in order, the same in every run of a test."""

    def __init__(self, start_ms: int = NOW_MS) -> None:
        self._next = start_ms << 80 | 7 << 76 | 2 << 62

    def new(self) -> UUID:
        """The next one."""
        self._next += 1
        return UUID(int=self._next)
