"""Short transactions on the engine, with the database's own troubles told as Unavailable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from uuid import UUID

import asyncpg
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.adapters.db.lane import crowded
from app.adapters.db.tables import projects
from app.core.errors import Unavailable

_STATES = ("08", "40", "53", "57")
"""Classes of SQLSTATE that speak of the connection, a lost race, resources or the operator."""


class Database:
    """Where the repositories get their connections."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """One transaction, committed when the block ends without an error. Raises Unavailable."""
        with told():
            async with self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection to read on. Raises Unavailable."""
        with told():
            async with self._engine.connect() as connection:
                yield connection


async def lock_project(connection: AsyncConnection, project_id: UUID) -> None:
    """Let one change to what a project has come after the other, so that two made at once are counted."""
    await connection.execute(
        sa.select(projects.c.id).where(projects.c.id == project_id).with_for_update(key_share=True)
    )


@contextmanager
def told() -> Iterator[None]:
    """Raises Unavailable for the database's own troubles, and where there are too few connections to it."""
    try:
        yield
    except exc.TimeoutError as late:  # the pool's, and nobody else's
        raise crowded() from late
    except (OSError, asyncpg.InternalClientError, exc.InterfaceError, exc.OperationalError) as error:
        raise _unavailable(error) from error
    except exc.DBAPIError as error:
        state = str(getattr(error.orig, "sqlstate", "") or "")
        if error.connection_invalidated or state.startswith(_STATES):
            raise _unavailable(error) from error
        raise


def _unavailable(error: BaseException) -> Unavailable:
    return Unavailable(f"The database is not available: {type(error).__name__}.", retry_after_s=1)
