"""What has to hold of the database before requests are sent to this process."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine

from app.adapters.db.migrate import is_current
from app.adapters.db.partitions import weeks_ahead
from app.adapters.db.session import Database, told
from app.core.errors import AppError
from app.ports.ambient import Clock

WEEKS = 2
"""Fewer weeks of the event log made ahead than this, and the next ones are in danger."""


class DatabaseChecks:
    """Each check tells what is wrong, or None."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._database = Database(engine)
        self._clock = clock

    async def migrated(self) -> str | None:
        """The database is there and has this version's tables."""
        try:
            with told():
                current = await is_current(self._engine)
        except AppError as error:
            return _as_clause(error)
        return None if current else "the database needs a migration: run `branchline migrate`"

    async def partitions(self) -> str | None:
        """The event log has room for the coming weeks."""
        try:
            async with self._database.reading() as connection:
                ahead = await weeks_ahead(connection, now_ms=self._clock.wall_ms())
        except AppError as error:
            return _as_clause(error)
        return None if ahead >= WEEKS else f"only {ahead} coming weeks have a partition, {WEEKS} are needed"


def _as_clause(error: AppError) -> str:
    """What is wrong, to be one of several things."""
    return error.detail[:1].lower() + error.detail[1:].rstrip(".")
