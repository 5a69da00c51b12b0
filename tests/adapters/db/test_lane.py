"""A connection for hot statements, when its process stands still at a bad moment."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import asyncpg
import pytest

from app.adapters.db.engine import driver_arguments
from app.adapters.db.lane import Lane
from app.core.errors import Unavailable
from tests.support.polling import until_true

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
LOCK = "SELECT pg_advisory_xact_lock(1)"
HOLDER = f"""
import asyncio, sys
from app.adapters.db.engine import driver_arguments
from app.adapters.db.lane import Lane

async def hold():
    lane = Lane(driver_arguments(sys.argv[1]), standstill_s=0.2)
    async with lane.use() as connection, connection.transaction():
        await connection.fetch({LOCK!r})
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(hold())
"""


async def _gone(watching: asyncpg.Connection[Any], pid: int) -> bool:
    found = await watching.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid)
    return not found


@pytest.fixture
def stopped(database_url: str) -> Iterator[None]:
    """A process that was stopped while it held a lock."""
    with Popen([sys.executable, "-c", HOLDER, database_url], cwd=ROOT, stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        process.send_signal(signal.SIGSTOP)
        yield
        process.kill()


async def test_a_process_that_stands_still_in_a_transaction_keeps_nobody_waiting(
    database_url: str, stopped: None
) -> None:
    lane = Lane(driver_arguments(database_url))
    async with lane.use() as connection, connection.transaction():
        assert await connection.fetch(LOCK, timeout=20)
    await lane.close()


async def test_what_it_had_begun_is_not_there_and_a_new_connection_is(database_url: str) -> None:
    watching = await asyncpg.connect(database_url)
    lane = Lane(driver_arguments(database_url), standstill_s=0.2)

    async def begun_and_left() -> None:
        async with lane.use() as connection, connection.transaction():
            await connection.execute("CREATE TABLE begun ()")
            pid = await connection.fetchval("SELECT pg_backend_pid()")
            await until_true(lambda: _gone(watching, pid))
            await connection.execute("CREATE TABLE gone_on_with ()")

    with pytest.raises(Unavailable):
        await begun_and_left()
    async with lane.use() as connection:
        assert await connection.fetchval("SELECT to_regclass('begun')") is None
    await lane.close()
    await watching.close()


async def test_a_schema_that_lacks_a_type_is_told_of_by_who_needs_it(database_url: str) -> None:
    lane = Lane(driver_arguments(database_url), types=["new_run", "of_a_later_version"])
    async with lane.use() as connection:
        assert await connection.fetchval("SELECT cardinality($1::new_run[])", []) == 0
        with pytest.raises(asyncpg.UndefinedObjectError):
            await connection.fetchval("SELECT $1::of_a_later_version[]", [])
    await lane.close()


async def test_who_waits_too_long_for_others_is_told_to_come_back(database_url: str) -> None:
    lane = Lane(driver_arguments(database_url))
    async with lane.use():
        with pytest.raises(Unavailable, match="Too many requests") as caught:
            async with lane.use(wait_s=0.01):
                pass
    assert caught.value.retry_after_s == 1
    async with lane.use(wait_s=0.01) as connection:
        assert await connection.fetchval("SELECT 1") == 1
    await lane.close()


async def test_of_those_who_wait_for_a_database_that_is_away_one_tries_to_reach_it() -> None:
    """Each of them would take as long as the first, one after the other."""
    tries = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.close()

    async def use(lane: Lane) -> None:
        async with lane.use():
            raise AssertionError("nobody is there")

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        lane = Lane({"host": "127.0.0.1", "port": port, "user": "u", "database": "d", "ssl": False})
        with pytest.raises(Unavailable):
            await use(lane)
        once = tries
        found = await asyncio.gather(*(use(lane) for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in found] == [Unavailable] * 5
    assert tries == 2 * once > 0
