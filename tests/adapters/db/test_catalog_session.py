"""Troubles of the database are told as what they are."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from sqlalchemy import exc, text

from app.adapters.db.engine import make_engine
from app.adapters.db.readiness import DatabaseChecks
from app.adapters.db.session import Database
from app.core.errors import Unavailable
from tests.support.ambient import FakeClock
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio

NOBODY_THERE = "postgresql://nobody@127.0.0.1:1/nothing"


async def test_a_database_that_is_not_there_is_unavailable() -> None:
    engine = make_engine(NOBODY_THERE)
    database = Database(engine)
    for use in (database.reading, database.writing):
        with pytest.raises(Unavailable) as caught:
            async with use():
                pass
        assert caught.value.retry_after_s == 1
        assert "127.0.0.1" not in caught.value.detail
    checks = DatabaseChecks(engine, FakeClock())
    assert await checks.migrated() is not None
    assert await checks.partitions() is not None
    await engine.dispose()


async def test_a_connection_cut_in_the_middle_is_unavailable_and_the_next_one_works(
    database_url: str,
) -> None:
    engine = make_engine(database_url, pool_size=1)
    database = Database(engine)

    async def cut_in_the_middle() -> None:
        async with database.writing() as connection:
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            other = await asyncpg.connect(database_url)
            await other.execute("SELECT pg_terminate_backend($1, 5000)", pid)
            await other.close()
            await connection.execute(text("SELECT 1"))

    with pytest.raises(Unavailable):
        await cut_in_the_middle()
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
    await engine.dispose()


async def test_a_fault_of_ours_is_not_called_the_databases(database_url: str) -> None:
    engine = make_engine(database_url)
    with pytest.raises(exc.ProgrammingError):
        async with Database(engine).writing() as connection:
            await connection.execute(text("SELECT nothing FROM nowhere"))
    await engine.dispose()


async def test_a_failed_transaction_leaves_nothing(database_url: str) -> None:
    engine = make_engine(database_url)
    database = Database(engine)

    async def fail_halfway() -> None:
        async with database.writing() as connection:
            await connection.execute(text("CREATE TABLE leaf (x int)"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_halfway()
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT to_regclass('leaf')"))).scalar_one() is None
    await engine.dispose()


async def test_readiness_asks_for_this_version_and_for_coming_weeks(
    postgres: PostgresServer, database_url: str
) -> None:
    clock = FakeClock()
    engine = make_engine(database_url)
    async with engine.begin() as connection:
        now_ms = (await connection.execute(text("SELECT extract(epoch FROM now()) * 1000"))).scalar_one()
    clock.now_ms = int(now_ms)
    checks = DatabaseChecks(engine, clock)
    assert (await checks.migrated(), await checks.partitions()) == (None, None)
    clock.now_ms += 3 * 7 * 24 * 3600 * 1000
    fault = await checks.partitions()
    assert fault is not None
    assert fault.startswith("only 1 ")
    await engine.dispose()
    async with postgres.database() as bare:
        engine = make_engine(bare)
        fault = await DatabaseChecks(engine, clock).migrated()
        assert fault is not None
        assert "migrat" in fault
        await engine.dispose()


async def test_a_full_pool_is_told_as_what_it_is(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.adapters.db.engine.POOL_WAIT_S", 0.01)
    engine = make_engine(database_url, pool_size=1)
    database = Database(engine)
    checks = DatabaseChecks(engine, FakeClock())
    async with database.reading(), database.reading():
        with pytest.raises(Unavailable, match="Too many requests wait for a connection") as caught:
            async with database.writing():
                pass
        told = caught.value.detail.rstrip(".").lower()
        assert [await checks.migrated(), await checks.partitions()] == [told, told]
    assert caught.value.retry_after_s == 1
    assert await checks.migrated() is None
    await engine.dispose()


async def test_what_the_driver_makes_of_half_an_answer_is_told_as_the_databases(database_url: str) -> None:
    engine = make_engine(database_url)
    with pytest.raises(Unavailable):
        async with Database(engine).reading():
            raise asyncpg.InternalClientError("got result for unknown protocol state")
    await engine.dispose()


async def test_who_gives_up_waiting_takes_no_connection_along(database_url: str) -> None:
    engine = make_engine(database_url, pool_size=1)
    database = Database(engine)
    checks = DatabaseChecks(engine, FakeClock())
    for _ in range(3):
        async with database.reading(), database.reading():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await checks.migrated()
    async with database.reading() as one, database.reading() as other:
        for connection in (one, other):
            assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
    await engine.dispose()
