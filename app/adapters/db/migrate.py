"""Bring the database to this version's tables; many processes may ask at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.adapters.db.partitions import ensure_partitions

LOCK = 0x6272616E63686C  # any constant will do, as long as it stays the same: it is "branchl"


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    here = Path(__file__).resolve()
    inside, beside = here.parents[2] / "migrations", here.parents[3] / "migrations"
    config.set_main_option("script_location", str(beside if beside.is_dir() else inside))
    config.attributes["connection"] = connection
    return config


def head() -> str:
    """The newest revision that this version knows."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def _upgrade(connection: Connection) -> None:
    current = MigrationContext.configure(connection).get_current_revision()
    if current != head():
        command.upgrade(_config(connection), "head")


async def migrate(engine: AsyncEngine, *, now_ms: int) -> None:
    """Upgrade to the newest revision and make the partitions of the coming weeks.

    One advisory lock is held from before the first look until after the last commit, so that of several
    processes one works and the others wait and find nothing to do.
    """
    async with engine.connect() as connection:
        await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": LOCK})
        await connection.commit()
        try:
            await connection.run_sync(_upgrade)
            await connection.commit()
            await ensure_partitions(connection, now_ms=now_ms)
            await connection.commit()
        finally:
            if not connection.invalidated:
                await connection.rollback()
                await asyncio.shield(
                    connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK})
                )
                await connection.commit()


async def is_current(engine: AsyncEngine) -> bool:
    """Whether the database has this version's tables."""
    async with engine.connect() as connection:
        return await connection.run_sync(
            lambda sync: MigrationContext.configure(sync).get_current_revision() == head()
        )
