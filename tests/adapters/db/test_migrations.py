"""Migrations: one of several processes works, and the tables are those that SQLAlchemy knows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from app.adapters.db.engine import make_engine
from app.adapters.db.migrate import head, is_current, migrate
from app.adapters.db.partitions import AHEAD, WEEK_MS, ensure_partitions, first_id, week_of, weeks_ahead
from app.adapters.db.tables import metadata
from tests.conftest import ROOT
from tests.support.ambient import NOW_MS
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio


def _differences(connection: Connection) -> list[object]:
    def ours(_object: object, name: str | None, kind: str, reflected: bool, _against: object) -> bool:
        # Partitions and indexes are told in the migrations alone.
        return kind != "index" and not (reflected and kind == "table" and "_w" in (name or ""))

    context = MigrationContext.configure(
        connection, opts={"include_object": ours, "compare_type": True, "compare_server_default": False}
    )
    return list(compare_metadata(context, metadata))


async def test_the_tables_are_those_that_sqlalchemy_knows(database_url: str) -> None:
    engine = make_engine(database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(_differences) == []
    await engine.dispose()


async def test_of_several_processes_on_an_empty_database_one_migrates(postgres: PostgresServer) -> None:
    async with postgres.database() as url:
        engines = [make_engine(url) for _ in range(3)]
        assert not await is_current(engines[0])
        await asyncio.gather(*(migrate(engine, now_ms=NOW_MS) for engine in engines))
        assert await is_current(engines[0])
        for engine in engines:
            await engine.dispose()


async def test_partitions_are_made_ahead_and_again_as_time_goes_by(database_url: str) -> None:
    engine = make_engine(database_url)
    later = NOW_MS + 100 * WEEK_MS
    async with engine.connect() as connection:
        assert await weeks_ahead(connection, now_ms=later) == 0
        await ensure_partitions(connection, now_ms=later)
        assert await weeks_ahead(connection, now_ms=later) == AHEAD
        assert await weeks_ahead(connection, now_ms=later + 2 * WEEK_MS) == AHEAD - 2
    await engine.dispose()


async def test_migrating_again_changes_nothing(database_url: str) -> None:
    engine = make_engine(database_url)
    count = text("SELECT count(*) FROM pg_class")
    async with engine.connect() as connection:
        before = await connection.scalar(count)
    await migrate(engine, now_ms=NOW_MS)
    await migrate(engine, now_ms=NOW_MS)
    async with engine.connect() as connection:
        assert await connection.scalar(count) >= before
        assert await is_current(engine)
    await engine.dispose()


@pytest.mark.parametrize(("revision", "current"), [("9999", True), ("0001", False)])
async def test_a_database_of_a_later_version_serves_and_is_left_alone(
    database_url: str, revision: str, current: bool
) -> None:
    """So that processes of two versions run side by side, and the older ones can be started anew."""
    engine = make_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = :to"), {"to": revision})
    assert await is_current(engine) is current
    if current:
        await migrate(engine, now_ms=NOW_MS)
        async with engine.connect() as connection:
            assert await connection.scalar(text("SELECT version_num FROM alembic_version")) == revision
    await engine.dispose()


async def test_what_followed_the_first_tables_can_be_taken_back_and_made_again(database_url: str) -> None:
    def back_and_forth(connection: Connection) -> tuple[list[Any], list[Any]]:
        config = Config()
        config.set_main_option("script_location", str(ROOT / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")
        without = _differences(connection)
        command.upgrade(config, "head")
        return without, _differences(connection)

    engine = make_engine(database_url)
    async with engine.connect() as connection:
        without, again = await connection.run_sync(back_and_forth)
    await engine.dispose()
    taken = {entry[1].name for entry in without if entry[0] == "add_table"}
    assert {"webhook_endpoints", "webhook_deliveries", "tools", "approvals", "client_calls"} <= taken
    assert again == []


def test_the_newest_revision_is_the_one_that_alembic_finds() -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == head()


async def test_making_partitions_waits_for_nobody_who_writes(database_url: str) -> None:
    engine = make_engine(database_url)
    async with engine.connect() as writer:
        row = {"id": first_id(week_of(NOW_MS))}
        await ensure_partitions(writer, now_ms=NOW_MS)
        await writer.commit()
        await writer.execute(text("INSERT INTO events (run_id, ts, seq, type) VALUES (:id, 1, 1, 260)"), row)
        async with asyncio.timeout(20), engine.begin() as maker:
            await ensure_partitions(maker, now_ms=NOW_MS + 50 * WEEK_MS)
    await engine.dispose()
