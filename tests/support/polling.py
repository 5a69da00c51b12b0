"""Wait on the event loop for a condition, with a bound, never for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Return as soon as `condition()` is true; fail the test when it does not become so in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not condition():
        assert loop.time() < deadline, f"still not so after {within_s} s"
        await asyncio.sleep(0.002)


async def until_true(condition: Callable[[], Awaitable[object]], *, within_s: float = 10.0) -> None:
    """The same for a condition that has to be asked for, over HTTP for example."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not await condition():
        assert loop.time() < deadline, f"still not so after {within_s} s"
        await asyncio.sleep(0.01)
