"""The requests of a minute in Postgres: shared out by several processes at once, never too many of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db.engine import driver_arguments
from app.adapters.db.shares import PostgresShares
from app.core.limits.share import KEEP, Grant
from tests.support.limits import OF_MINUTE, in_one_minute

pytestmark = pytest.mark.anyio

PROJECT, OTHER = UUID(int=1), UUID(int=2)


class World:
    """Processes on a database with two projects that have limits."""

    def __init__(self, url: str, connection: asyncpg.Connection[Any]) -> None:
        self.url = url
        self.connection = connection
        self.processes = [PostgresShares(driver_arguments(url)) for _ in range(3)]

    async def limit(self, project: UUID, requests: int | None) -> None:
        """Set a limit, and forget what was used."""
        await self.connection.execute(
            "INSERT INTO quotas (id, project_id, requests_per_minute) VALUES ($1, $1, $2) "
            "ON CONFLICT (id) DO UPDATE SET requests_per_minute = $2",
            project,
            requests,
        )

    async def minute(self, shift: int, taken: int) -> int:
        """Have the first project's counter be that of another minute; the one that it is now."""
        now: int = await self.connection.fetchval(OF_MINUTE)
        await self.connection.execute(
            "INSERT INTO quota_minutes VALUES ($1, $2, 10, $3, 0) ON CONFLICT (quota_id) DO UPDATE "
            "SET minute = $2, taken = $3",
            PROJECT,
            now + shift,
            taken,
        )
        return now

    async def take(self, wanted: int, project: UUID = PROJECT, process: int = 0) -> Grant:
        """What a process is given; the project has to have a limit."""
        grant = await self.processes[process].take(project, wanted)
        assert grant is not None
        return grant


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    connection = await asyncpg.connect(database_url)
    for project in (PROJECT, OTHER):
        await connection.execute(
            "INSERT INTO projects (id, name) VALUES ($1, $2)", project, f"project {project.int}"
        )
    made = World(database_url, connection)
    yield made
    for process in made.processes:
        await process.close()
    await connection.close()


@pytest.mark.parametrize("quota", [1, 7, 64, 1_000])
async def test_all_processes_are_given_exactly_what_there_is(world: World, quota: int) -> None:
    draw = random.Random(quota)

    async def emptied() -> list[Grant]:
        await world.connection.execute("TRUNCATE quota_minutes")
        await world.limit(PROJECT, quota)
        grants: list[Grant] = []

        async def process(number: int) -> None:
            while (grant := await world.take(draw.randint(1, 2 * quota), process=number)).granted:
                grants.append(grant)

        await asyncio.gather(*(process(number % 3) for number in range(9)))
        return grants

    grants = await in_one_minute(world.url, emptied)
    assert sum(grant.granted for grant in grants) == quota
    assert {grant.taken for grant in grants} >= {quota}
    assert {grant.quota for grant in grants} == {quota}
    assert max(grant.granted for grant in grants) <= max(1, quota // KEEP)


@pytest.mark.parametrize(
    ("shift", "taken", "granted"),
    [(-1, 10, 1), (0, 10, 0), (0, 9, 1), (0, 12, 0), (1, 9, 1), (1, 10, 0)],
    ids=["before", "used up", "one left", "over a lower limit", "a clock that went back", "and used up"],
)
async def test_a_counter_is_for_its_minute(world: World, shift: int, taken: int, granted: int) -> None:
    await world.limit(PROJECT, 10)

    async def one() -> tuple[int, Grant]:
        return await world.minute(shift, taken), await world.take(5)

    now, grant = await in_one_minute(world.url, one)
    # A minute that has begun for somebody never begins again.
    assert grant.minute == now + max(shift, 0)
    assert grant.granted == granted
    assert grant.taken == (0 if shift < 0 else taken) + granted
    assert 0 < grant.ends_in_ms <= 60_000 * (2 if shift > 0 else 1)


async def test_what_is_given_back_can_be_taken_again_in_its_minute(world: World) -> None:
    await world.limit(PROJECT, 16)

    async def some() -> list[Grant]:
        await world.connection.execute("TRUNCATE quota_minutes")
        first = await world.take(2)
        await world.processes[1].give_back({PROJECT: (first.minute - 1, 2), OTHER: (first.minute, 9)})
        second = await world.take(1)
        await world.processes[1].give_back({PROJECT: (first.minute, 2)})
        return [first, second, await world.take(1)]

    assert [grant.taken for grant in await in_one_minute(world.url, some)] == [2, 3, 2]


async def test_many_ask_for_many_in_one_statement(world: World) -> None:
    for project in (PROJECT, OTHER):
        await world.limit(project, 80)
    asks = [world.take(3, project, process) for process in range(3) for project in (OTHER, PROJECT)]
    grants = await asyncio.gather(*asks)
    assert [grant.granted for grant in grants] == [3] * 6


async def test_where_there_is_no_limit_nothing_is_given(world: World) -> None:
    assert await world.processes[0].take(PROJECT, 1) is None
    await world.limit(PROJECT, 5)
    await world.take(1)
    await world.limit(PROJECT, None)
    assert await world.processes[0].take(PROJECT, 1) is None
