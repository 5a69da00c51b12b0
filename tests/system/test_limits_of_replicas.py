"""Limits that several processes share: together they let in as much as one would."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.database import migrated
from tests.support.limits import Limited, in_one_minute
from tests.support.polling import until_true
from tests.support.postgres import PostgresServer
from tests.support.process import Process, serving

pytestmark = pytest.mark.anyio

ENDLESS = [{"text": "one"}, {"wait_ms": 600_000}, {"end": "stop"}]


@dataclass(frozen=True)
class Replicas:
    """Processes over one database, and what is limited there."""

    processes: Sequence[Process]
    limited: Limited
    database_url: str
    home: Path
    """Where the processes find the secrets that they share."""


@pytest.fixture(scope="module")
async def replicas(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Replicas]:
    async with migrated(postgres) as url, AsyncExitStack() as stack:
        home: Path = tmp_path_factory.mktemp("replicas")
        # A process that is only slow keeps its runs: one that is taken for lost makes room for another.
        settings = {"BRANCHLINE_LEASE_MS": "30000"}
        processes = [await stack.enter_async_context(serving(url, home, **settings)) for _ in range(2)]
        yield Replicas(processes, await Limited.of(processes[0].http), url, home)


async def burst(replicas: Replicas, key: dict[str, str], number: int) -> list[int]:
    """Requests to all processes in turn, 32 at a time; the statuses of the answers."""
    places = asyncio.Semaphore(32)

    async def one(nth: int) -> int:
        async with places:
            process = replicas.processes[nth % len(replicas.processes)]
            return (await process.http.get("/v1/version", headers=key)).status_code

    return await asyncio.gather(*(one(nth) for nth in range(number)))


async def all_of(replicas: Replicas, key: dict[str, str], number: int) -> int:
    """How many requests are let in, when it is tried for as long as these are fewer than expected.

    What one process has set aside and another one needs comes back within seconds.
    """
    statuses = await burst(replicas, key, number + 64)

    async def used_up() -> bool:
        statuses.extend(await burst(replicas, key, 4))
        return statuses.count(200) >= number

    await until_true(used_up, within_s=20)
    statuses += await burst(replicas, key, 32)
    assert set(statuses) == {200, 429}
    return statuses.count(200)


@pytest.mark.parametrize("quota", [1, 9, 100, 400])
async def test_all_processes_together_let_in_what_a_minute_may(replicas: Replicas, quota: int) -> None:
    async def work() -> int:
        _, key = await replicas.limited.key(requests_per_minute=quota)
        return await all_of(replicas, key, quota)

    assert await in_one_minute(replicas.database_url, work) == quota


async def test_a_killed_process_takes_no_more_with_it_than_its_share(replicas: Replicas) -> None:
    quota, share = 200, 10

    async def work() -> int:
        _, key = await replicas.limited.key(requests_per_minute=quota)
        async with serving(replicas.database_url, replicas.home) as third:
            assert (await third.http.get("/v1/version", headers=key)).status_code == 200
            third.process.kill()
            await third.process.wait()
        return await all_of(replicas, key, quota - share)

    # It may have had the time to give back what it did not use.
    assert quota - share <= await in_one_minute(replicas.database_url, work) < quota


async def test_of_many_at_the_last_permitted_run_one_gets_in(replicas: Replicas) -> None:
    first, second = (process.http for process in replicas.processes)
    options = {"streams": [{"attempts": [ENDLESS]}]}
    spec = {"provider": "scripted", "model": "m", "options": options, "lifecycle": {"timeout": None}}
    await first.put("/v1/models/endless", json=spec)
    id, key = await replicas.limited.key("run", "read", concurrent_runs=1)
    branches = [
        (await first.post("/v1/branches", json={"chat_model": "endless"})).json()["id"] for _ in range(32)
    ]
    headers = {"Prefer": "respond-async", **key}

    async def start(nth: int) -> httpx.Response:
        return await (first, second)[nth % 2].post(
            f"/v1/branches/{branches[nth]}/operate", json={"instruction": "go"}, headers=headers
        )

    for _ in range(3):
        answers = await asyncio.gather(*map(start, range(32)))
        assert Counter(answer.status_code for answer in answers) == {202: 1, 429: 31}
        (run,) = (answer.json()["id"] for answer in answers if answer.status_code == 202)
        await second.post(f"/v1/runs/{run}/cancel")

        async def over() -> bool:
            found: dict[str, Any] = await replicas.limited.get(id)
            return bool(found["concurrent_runs"]["used"] == 0)

        await until_true(over)


async def test_a_limit_that_one_process_sets_holds_in_the_other_within_seconds(replicas: Replicas) -> None:
    second = replicas.processes[1].http
    id, key = await replicas.limited.key()
    assert "ratelimit" not in (await second.get("/v1/version", headers=key)).headers
    await replicas.limited.set(id, requests_per_minute=100_000)

    async def told() -> bool:
        return "ratelimit" in (await second.get("/v1/version", headers=key)).headers

    await until_true(told)
    await replicas.limited.set(id)

    async def silent() -> bool:
        return not await told()

    await until_true(silent)
