"""How long the event loop was held by one thing, in processor time: a busy machine counts for nothing.

Neither do collections of garbage: here they go through all that the tests have made, which in a process of
its own the service does not have, and fall on whatever runs by then.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

EVERY_S: Final = 0.02


@dataclass
class Work:
    """The processor time of the thread that it was made in."""

    _thread: int = field(default_factory=threading.get_ident)
    _collecting_since: float = 0.0
    _collected_s: float = 0.0

    def collects(self, phase: str, info: dict[str, Any]) -> None:
        """A callback of the garbage collector."""
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_since

    def seconds(self) -> float:
        """How much there was, collections left out."""
        return time.thread_time() - self._collected_s


@dataclass
class Held:
    """What was seen so far."""

    _work: Work
    longest_s: float = 0.0
    """Seconds of processor time between two turns of a task that only wants to be let in."""
    _before: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """It wants to be let in."""
        self._before = self._work.seconds()
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._look)

    def stop(self) -> None:
        """Look once more."""
        now = self._work.seconds()
        self.longest_s = max(self.longest_s, now - self._before)
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """It is let in, and will want to be again."""
        self.stop()
        self.begin()


@contextmanager
def watched() -> Iterator[Held]:
    """Watch the running loop for the block."""
    held = Held(work := Work())
    gc.callbacks.append(work.collects)
    held.begin()
    try:
        yield held
    finally:
        held.stop()
        gc.callbacks.remove(work.collects)
