"""Work that goes on for as long as the service does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

log = structlog.get_logger("background")


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have work done beside the block, and end it with the block."""
    task = asyncio.create_task(_loud(work))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _loud(work: Coroutine[Any, Any, None]) -> None:
    """Background work must not die in silence."""
    try:
        await work
    except Exception:
        log.exception("background work ended")
        raise
