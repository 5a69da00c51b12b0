"""Put together what carries histories out and in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine

from app import __version__
from app.adapters.db.engine import driver_arguments
from app.adapters.db.exporting import PostgresExports
from app.adapters.db.importing import PostgresImports
from app.api.routes.transfer import Transfer
from app.ports.ambient import Clock, IdSource
from app.ports.storage import RunStore
from app.services.exports import Exports
from app.services.imports import Imports
from app.services.projects import Projects
from app.settings import Settings


@asynccontextmanager
async def transferring(
    settings: Settings,
    database_url: str,
    engine: AsyncEngine,
    clock: Clock,
    ids: IdSource,
    store: RunStore,
    projects: Projects,
) -> AsyncIterator[Transfer]:
    """For the length of the block; nothing is connected before it is used."""
    arguments = driver_arguments(database_url)
    reader, writer = PostgresExports(arguments, ids), PostgresImports(arguments, engine, ids)
    try:
        yield Transfer(
            Exports(reader, store, projects, clock, __version__),
            Imports(writer, clock),
            settings.import_bytes,
            settings.import_line_bytes,
        )
    finally:
        await reader.close()
        await writer.close()
