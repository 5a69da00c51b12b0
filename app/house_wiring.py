"""Keep the database in order: partitions ahead of time, and nothing kept longer than it has to be."""

from __future__ import annotations

import asyncio

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.adapters.db.partitions import ensure_partitions
from app.adapters.db.quotas import forget_counts
from app.adapters.db.replies import forget_old
from app.adapters.db.retention import sweep
from app.adapters.db.webhooks import forget_deliveries
from app.ports.ambient import Clock

HOUSEKEEPING_S = 3600.0
"""Pause between two rounds."""

log = structlog.get_logger("wiring")


async def keep_house(
    engine: AsyncEngine, clock: Clock, retention_days: int | None, *, pause_s: float = HOUSEKEEPING_S
) -> None:
    """Round after round, until cancelled; one that fails is logged, and the next one follows.

    `retention_days` is how long logs of projects are kept that do not say so; None is for ever.
    """
    while True:
        await asyncio.sleep(pause_s)
        try:
            async with engine.begin() as connection:
                await ensure_partitions(connection, now_ms=clock.wall_ms())
                await forget_old(connection)
                await forget_counts(connection)
            await _forget_deliveries(engine)
            await sweep(engine, now_ms=clock.wall_ms(), days=retention_days)
        except Exception:
            log.exception("housekeeping failed; the next try follows")


async def _forget_deliveries(engine: AsyncEngine) -> None:
    """In small transactions, for there may be many."""
    while True:
        async with engine.begin() as connection:
            if not await forget_deliveries(connection):
                return
