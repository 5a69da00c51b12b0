"""Bringing an embedded part back when it dies or hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app.adapters.embedded.errors import EmbeddedError

_MOST_S = 30.0


async def keep_alive(
    is_ready: Callable[[], bool],
    revive: Callable[[], Awaitable[None]],
    report: Callable[[str], None],
    interval_s: float = 1.0,
) -> None:
    """Ask `is_ready`, which may block, every `interval_s` seconds, and `revive` what is not; until cancelled.

    `report` hears of each revival and of each failure to revive; after a failure the next attempt waits twice
    as long, up to half a minute.
    """
    pause_s = interval_s
    while True:
        await asyncio.sleep(pause_s)
        if await asyncio.to_thread(is_ready):
            continue
        try:
            await revive()
        except EmbeddedError as error:
            report(str(error))
            pause_s = min(pause_s * 2, _MOST_S)
        else:
            report("An embedded part had stopped working and was restarted")
            pause_s = interval_s
