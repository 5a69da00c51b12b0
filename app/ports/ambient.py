"""Time and identifiers, which the core never makes itself."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    """Where services read the time."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""

    def mono_ms(self) -> float:
        """Milliseconds of a clock that never goes back; only differences mean anything."""


class IdSource(Protocol):
    """Where new identifiers come from."""

    def new(self) -> UUID:
        """A fresh UUIDv7, later ones greater."""
