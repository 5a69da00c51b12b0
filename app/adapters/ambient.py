"""The real clock and the real identifiers."""

from __future__ import annotations

import time
from uuid import UUID

from uuid_utils.compat import uuid7


class SystemClock:
    """`ports.ambient.Clock`."""

    def wall_ms(self) -> int:
        """See the port."""
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> float:
        """See the port."""
        return time.monotonic_ns() / 1_000_000


class Uuid7Ids:
    """`ports.ambient.IdSource`; ids made by one process within one millisecond are in order too."""

    def new(self) -> UUID:
        """See the port."""
        return uuid7()
