"""How long the event loop was held by one thing, in processor time: a busy machine counts for nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

EVERY_S: Final = 0.02


@dataclass
class Held:
    """What was seen so far."""

    longest_s: float = 0.0
    """Seconds of this thread's processor time between two turns of a task that only wants to be let in."""


@contextmanager
def watched() -> Iterator[Held]:
    """Watch the running loop for the block."""
    held, loop = Held(), asyncio.get_running_loop()
    before = time.thread_time()

    def look() -> None:
        nonlocal before, timer
        now = time.thread_time()
        held.longest_s = max(held.longest_s, now - before)
        before = now
        timer = loop.call_later(EVERY_S, look)

    timer = loop.call_later(EVERY_S, look)
    try:
        yield held
    finally:
        timer.cancel()
        held.longest_s = max(held.longest_s, time.thread_time() - before)
