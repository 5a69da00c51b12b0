"""The real clock and the real identifiers."""

from __future__ import annotations

import time
from uuid import UUID

from uuid_utils.compat import uuid7


class SystemClock:
    """`ports.ambient.Clock`; the monotonic time counts from the epoch as the first reading knew it."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def wall_ms(self) -> int:
        """See the port."""
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> float:
        """See the port."""
        return time.monotonic() * 1000 + self._offset_ms


class Uuid7Ids:
    """`ports.ambient.IdSource`; ids made by one process within one millisecond are in order too."""

    def new(self) -> UUID:
        """See the port."""
        return uuid7()
