"""The tests' own Postgres: fresh databases, and templates made once."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio


async def _run(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_a_fresh_database_is_empty_and_goes_away(postgres: PostgresServer) -> None:
    async with postgres.database() as url:
        assert await _run(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await _run(url, "SELECT 1")


async def test_a_template_is_built_once_and_copied(postgres: PostgresServer) -> None:
    built = []

    async def build(url: str) -> None:
        built.append(url)
        await _run(url, "CREATE TABLE leaf AS SELECT 7 AS x")

    names = await asyncio.gather(*(postgres.ensure_template("template_of_leaves", build) for _ in range(3)))
    try:
        assert len(built) == 1
        async with postgres.database(template=names[0]) as url:
            assert await _run(url, "SELECT x FROM leaf") == 7
    finally:
        await postgres.drop(names[0])


async def test_a_template_that_fails_leaves_nothing(postgres: PostgresServer) -> None:
    async def fail(_: str) -> None:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await postgres.ensure_template("template_of_nothing", fail)
    found = await _run(postgres.url, "SELECT count(*) FROM pg_database WHERE datname = 'template_of_nothing'")
    assert found == 0
