"""Wait on the event loop for a condition, with a bound, never for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Return as soon as `condition()` is true; fail the test when it does not become so in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not condition():
        assert loop.time() < deadline, f"still not so after {within_s} s"
        await asyncio.sleep(0.002)
