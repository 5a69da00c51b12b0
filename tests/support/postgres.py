"""A Postgres for tests, and fresh databases in it.

One server serves a whole test run: the one of TEST_DATABASE_URL or DATABASE_URL when set, else an embedded
one in a temporary folder, which the workers of a parallel run share. This module is a pytest plugin:
tests/conftest.py lists it in `pytest_plugins`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from app.adapters.embedded.postgres import EmbeddedPostgres

ROOT_VARIABLE = "BRANCHLINE_TEST_POSTGRES"
"""Names the folder of the run's embedded server to the workers of a parallel run."""

NOT_DURABLE = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}
"""Settings of a server whose contents need not outlive the run."""

_TEMPLATE_LOCK = 4_812_650_001


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server in which tests make databases of their own."""

    url: str
    """`postgresql://…` of a database whose user may create others."""

    def url_of(self, database: str) -> str:
        """The URL of another database of this server."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    async def create(self, template: str | None = None) -> str:
        """Make a database, a copy of `template` or empty; returns its name."""
        name = f"test_{uuid.uuid4().hex}"
        source = template or "template0"
        async with self._connection() as connection:
            await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"')
        return name

    async def drop(self, name: str) -> None:
        """Remove a database together with the connections that are still open to it."""
        async with self._connection() as connection:
            await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    @asynccontextmanager
    async def database(self, template: str | None = None) -> AsyncIterator[str]:
        """A fresh database for the time of the block; gives its URL."""
        name = await self.create(template)
        try:
            yield self.url_of(name)
        finally:
            await self.drop(name)

    async def ensure_template(self, name: str, build: Callable[[str], Awaitable[None]]) -> str:
        """Make the template database `name` once, whichever worker comes first; returns `name`.

        `build` is given the URL of an empty database, fills it, and closes its connections. When it fails
        nothing of that name is left.
        """
        async with self._connection() as connection:
            await connection.execute("SELECT pg_advisory_lock($1)", _TEMPLATE_LOCK)
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
                unfinished = await self.create()
                try:
                    await build(self.url_of(unfinished))
                    await connection.execute(f'ALTER DATABASE "{unfinished}" RENAME TO "{name}"')
                finally:
                    await self.drop(unfinished)
        return name

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        connection = await asyncpg.connect(self.url)
        try:
            yield connection
        finally:
            await connection.close()


def given_url() -> str | None:
    """The server that the environment names, without the driver that SQLAlchemy writes into a URL."""
    url = os.environ.get("TEST_DATABASE_URL") or os.environ.get("DATABASE_URL")
    return url.replace("postgresql+asyncpg://", "postgresql://", 1) if url else None


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder before a parallel run starts its workers; whoever needs the server makes it."""
    if given_url() is None and ROOT_VARIABLE not in os.environ:
        root = Path(tempfile.gettempdir()) / f"branchline-tests-{uuid.uuid4().hex}"
        os.environ[ROOT_VARIABLE] = str(root)
        config.add_cleanup(lambda: _remove(root))


def _remove(root: Path) -> None:
    del os.environ[ROOT_VARIABLE]
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server of this test run, started when the first test asks for it."""
    url = given_url()
    if url is not None:
        yield PostgresServer(url)
        return
    root = Path(os.environ[ROOT_VARIABLE])
    with EmbeddedPostgres(root, settings=NOT_DURABLE, initdb_options=["--no-sync"]) as server:
        yield PostgresServer(server.url)
