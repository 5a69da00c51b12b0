"""How long the event loop was held by one thing, in processor time: a busy machine counts for nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

EVERY_S: Final = 0.02


@dataclass
class Held:
    """What was seen so far."""

    longest_s: float = 0.0
    """Seconds of this thread's processor time between two turns of a task that only wants to be let in."""
    _before: float = field(default_factory=time.thread_time)
    _timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """It is let in, and will want to be again."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self.look)

    def stop(self) -> None:
        """Look once more."""
        now = time.thread_time()
        self.longest_s = max(self.longest_s, now - self._before)
        self._before = now
        if self._timer is not None:
            self._timer.cancel()


@contextmanager
def watched() -> Iterator[Held]:
    """Watch the running loop for the block."""
    held = Held()
    held.look()
    try:
        yield held
    finally:
        held.stop()
