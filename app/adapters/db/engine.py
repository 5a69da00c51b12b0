"""The SQLAlchemy engine (for everything off the hot path) and what a database URL means."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from pydantic_core import from_json
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.core.json_text import dumps

APPLICATION_NAME = "branchline"
PATIENCE_S = 60.0
"""How long a statement may take before its connection counts as lost."""
POOL_WAIT_S = 10.0
"""How long somebody waits for a connection of the engine's when all are in use."""
CLOSE_S = 5.0
"""How long connections may take to be closed in good order."""


def database_url(text: str) -> URL:
    """Any common spelling of a Postgres URL, as SQLAlchemy with asyncpg wants it.

    Raises ValueError for a URL of another database.
    """
    url = make_url(text)
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise ValueError(f"DATABASE_URL must be a postgresql:// URL, not {url.get_backend_name()!r}")
    return url.set(drivername="postgresql+asyncpg")


def driver_arguments(text: str) -> dict[str, Any]:
    """The same URL as keyword arguments of `asyncpg.connect`."""
    url = database_url(text)
    host = url.query.get("host", url.host)
    arguments: dict[str, Any] = {
        "host": host,
        "port": url.port,
        "user": url.username,
        "password": url.password,
        "database": url.database,
    }
    if sslmode := url.query.get("sslmode", url.query.get("ssl")):
        arguments["ssl"] = sslmode
    return {name: value for name, value in arguments.items() if value is not None}


def make_engine(text: str, *, pool_size: int = 5, patience_s: float | None = PATIENCE_S) -> AsyncEngine:
    """An engine for `text`; at most twice `pool_size` connections, opened when first used.

    A migration may take as long as it needs, and is given no `patience_s`.
    """
    url = database_url(text)
    query = {name: value for name, value in url.query.items() if name != "sslmode"}
    if sslmode := url.query.get("sslmode"):
        query["ssl"] = sslmode
    return create_async_engine(
        url.set(query=query),
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=POOL_WAIT_S,
        pool_pre_ping=True,
        hide_parameters=True,  # they are what users said, and errors are logged
        json_serializer=lambda value: dumps(value).decode(),
        json_deserializer=from_json,
        connect_args={
            "command_timeout": patience_s,
            "server_settings": {"application_name": APPLICATION_NAME},
        },
    )


async def put_away(engine: AsyncEngine) -> None:
    """Close the engine's connections; one whose other end is gone without a word is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await engine.dispose()
