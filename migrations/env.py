"""Run migrations on the connection that holds the lock, or on DATABASE_URL for alembic's own commands."""

from __future__ import annotations

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from app.adapters.db.engine import make_engine
from app.adapters.db.tables import metadata


def run(connection: Connection) -> None:
    """Apply what is asked for, all of it in one transaction."""
    context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=False)
    with context.begin_transaction():
        context.run_migrations()


async def from_environment() -> None:
    """Connect by DATABASE_URL."""
    engine = make_engine(os.environ["DATABASE_URL"], patience_s=None)
    async with engine.connect() as connection:
        await connection.run_sync(run)
        await connection.commit()
    await engine.dispose()


held: Connection | None = context.config.attributes.get("connection")
if held is not None:
    run(held)
else:
    asyncio.run(from_environment())
