"""A migrated database for each test that asks for one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.adapters.db.engine import make_engine
from app.adapters.db.migrate import head, migrate
from tests.support.postgres import PostgresServer


async def _build(url: str) -> None:
    engine = make_engine(url)
    try:
        await migrate(engine, now_ms=int(time.time() * 1000))
    finally:
        await engine.dispose()


@asynccontextmanager
async def migrated(postgres: PostgresServer) -> AsyncIterator[str]:
    """The URL of an empty database of this version, for the time of the block."""
    template = await postgres.ensure_template(f"branchline_{head()}", _build)
    async with postgres.database(template) as url:
        yield url


@pytest.fixture
async def database_url(postgres: PostgresServer) -> AsyncIterator[str]:
    """The URL of an empty database of this version, the test's own."""
    async with migrated(postgres) as url:
        yield url
