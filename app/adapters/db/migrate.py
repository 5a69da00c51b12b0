"""Bring the database to this version's tables; many processes may ask at once."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.adapters.db.partitions import ensure_partitions

LOCK = 0x6272616E63686C  # any constant will do, as long as it stays the same: it is "branchl"


def _folder() -> Path:
    here = Path(__file__).resolve()
    inside, beside = here.parents[2] / "migrations", here.parents[3] / "migrations"
    return beside if beside.is_dir() else inside


@cache
def head() -> str:
    """The newest revision that this version knows: files are named by their numbers."""
    return max(path.name.partition("_")[0] for path in (_folder() / "versions").glob("[0-9]*_*.py"))


def _current(connection: Connection) -> str | None:
    if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def _is_known(found: str | None) -> bool:
    """Whether a database at this revision has all that this version uses.

    A later one has it too: migrations only add while there are processes that would miss something. So
    processes of two versions serve side by side, and the older ones may be started anew.
    """
    return found is not None and found >= head()


def _upgrade(connection: Connection) -> None:
    if _is_known(_current(connection)):
        return
    # Most starts have nothing to migrate, and are spared its 10 MB.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_folder()))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def migrate(engine: AsyncEngine, *, now_ms: int) -> None:
    """Upgrade to the newest revision, or leave a newer one, and make the partitions of the coming weeks.

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
    """Whether the database has this version's tables, and perhaps more."""
    async with engine.connect() as connection:
        return _is_known(await connection.run_sync(_current))
