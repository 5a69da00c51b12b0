"""A client that reads an export slowly, or not at all, keeps nobody waiting and holds nothing."""

from __future__ import annotations

import asyncpg
import pytest

from tests.support.polling import until_true
from tests.support.service import Service, running
from tests.support.transfer import exported

pytestmark = pytest.mark.anyio

LONG = "all work and no play " * 1_000
RUNS, CHUNKS = 3, 150


async def test_an_export_that_nobody_reads_holds_no_connection(database_url: str) -> None:
    async with running(database_url) as service:
        await service.scripted("long", [*({"text": LONG} for _ in range(CHUNKS)), {"end": "stop"}])
        branch = await service.branch(chat_model="long", lifecycle={"guardrails": [], "drift": False})
        for number in range(RUNS):
            run = await service.operate(branch, instruction=str(number), clear_messages=True)
            assert run["status"] == "completed"
        other = await _small(service)
        connection = await asyncpg.connect(database_url)
        path = f"/v1/branches/{branch}"
        size = 0
        async with service.http.stream("GET", f"{path}/export") as slow:
            chunks = slow.aiter_raw()
            size += len(await anext(chunks))

            async def idle() -> bool:
                return not await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'branchline' "
                    "AND datname = current_database() AND state <> 'idle'"
                )

            # The server has stopped: nobody takes what it sends. Everything else goes on.
            await until_true(idle)
            assert len(await exported(service, f"/v1/branches/{other}")) > 3
            assert (await service.operate(other))["status"] == "completed"
            await until_true(idle)
            async for chunk in chunks:
                size += len(chunk)
        await connection.close()
        assert size > 2 * RUNS * CHUNKS * len(LONG)


async def test_an_export_that_is_left_ends(database_url: str) -> None:
    async with running(database_url) as service:
        await service.scripted("long", [*({"text": LONG} for _ in range(CHUNKS)), {"end": "stop"}])
        branch = await service.branch(chat_model="long", lifecycle={"guardrails": [], "drift": False})
        await service.operate(branch)
        for _ in range(3):
            async with service.http.stream("GET", f"/v1/branches/{branch}/export") as left:
                await anext(left.aiter_raw())
        lines = await exported(service, f"/v1/branches/{branch}")
        assert lines[-2]["lines"] == len(lines) - 3


async def _small(service: Service) -> str:
    await service.scripted("short", [{"text": "fine"}, {"end": "stop"}])
    branch = await service.branch(chat_model="short")
    await service.operate(branch)
    return branch
