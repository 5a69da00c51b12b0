"""Put together what holds keys and projects to their limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app.adapters.db.engine import driver_arguments
from app.adapters.db.quotas import PostgresQuotas
from app.adapters.db.session import Database
from app.adapters.db.shares import PostgresShares
from app.ports.ambient import Clock, IdSource
from app.services.background import background
from app.services.limits import Limits, Meter


@asynccontextmanager
async def limiting(
    database: Database, database_url: str, clock: Clock, ids: IdSource, changed: Callable[[], None]
) -> AsyncIterator[Limits]:
    """The limits, shared with other processes until the block ends; `changed` is called when some are set."""
    shares = PostgresShares(driver_arguments(database_url))
    limits = Limits(PostgresQuotas(database, ids), Meter(shares, clock), changed)
    async with background(limits.work()):
        try:
            yield limits
        finally:
            await shares.close()
