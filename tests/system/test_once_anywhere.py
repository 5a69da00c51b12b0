"""Idempotency keys over several processes, and over the death of the one that had the first request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.database import migrated
from tests.support.polling import until_true
from tests.support.postgres import PostgresServer
from tests.support.process import serving
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

HELLO: list[dict[str, Any]] = [{"text": "Hello"}, {"wait_ms": 50}, {"text": " world"}, {"end": "stop"}]
ONCE = {"Idempotency-Key": "order-1"}


@pytest.fixture(scope="module")
async def replicas(postgres: PostgresServer) -> AsyncIterator[tuple[Service, Service, Service]]:
    """Two processes that do everything, and one that accepts."""
    async with (
        migrated(postgres) as url,
        running(url) as one,
        running(url) as other,
        running(url, role="api") as api,
    ):
        yield one, other, api


async def test_one_key_makes_one_run_wherever_it_is_sent(replicas: tuple[Service, Service, Service]) -> None:
    branch = await replicas[0].branch(chat_model=await replicas[0].scripted("m", HELLO))
    path = f"/v1/branches/{branch}/operate"
    answers = await asyncio.gather(
        *(
            replicas[number % 3].http.post(path, json={"instruction": "hi"}, headers=ONCE)
            for number in range(12)
        )
    )
    assert {(answer.status_code, answer.json()["result"]) for answer in answers} == {(200, "Hello world")}
    assert len({answer.json()["id"] for answer in answers}) == 1
    first = [answer for answer in answers if answer.headers.get("Idempotency-Replayed") != "true"]
    assert len(first) == 1
    assert len((await replicas[1].get(f"/v1/runs?branch_id={branch}"))["data"]) == 1
    other = await replicas[2].http.post(path, json={"instruction": "another"}, headers=ONCE)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_one_key_makes_one_branch_wherever_it_is_sent(
    replicas: tuple[Service, Service, Service],
) -> None:
    answers = await asyncio.gather(
        *(
            replicas[number % 3].http.post("/v1/branches", json={"name": "once"}, headers=ONCE)
            for number in range(12)
        )
    )
    made = {answer.json()["id"] for answer in answers if answer.status_code == 201}
    assert len(made) == 1
    # Who asks while the first is being answered is told so; then everybody gets the first answer.
    assert {answer.status_code for answer in answers} <= {201, 409}
    for service in replicas:
        again = await service.http.post("/v1/branches", json={"name": "once"}, headers=ONCE)
        assert (again.status_code, again.json()["id"]) == (201, *made)


async def test_a_request_whose_process_died_before_its_answer_is_not_carried_out_again(
    database_url: str, tmp_path: Path
) -> None:
    """The run is committed, its client has heard nothing, and asks again somewhere else."""
    spec = {"provider": "scripted", "model": "m", "options": {"streams": [{"attempts": [HELLO]}]}}
    slow = {"requests": [{"function": "later", "arguments": {"seconds": 30, "value": "late"}}]}
    connection = await asyncpg.connect(database_url)
    async with serving(database_url, tmp_path / "first") as first:
        await first.http.put("/v1/models/m", json=spec)
        branch = (await first.http.post("/v1/branches", json={"chat_model": "m"})).json()["id"]
        path = f"/v1/branches/{branch}/act"
        unanswered = asyncio.create_task(first.http.post(path, json=slow, headers=ONCE))

        async def stored() -> Any:
            return await connection.fetchval("SELECT run_id FROM idempotency_keys")

        await until_true(stored)
        run = str(await stored())
        first.process.kill()
        await first.process.wait()
        await asyncio.wait([unanswered])
        assert unanswered.exception() is not None
    async with serving(database_url, tmp_path / "second") as second:
        again = await second.http.post(path, json=slow, headers={**ONCE, "Prefer": "wait=50"})
        assert again.headers["Idempotency-Replayed"] == "true"
        assert (again.status_code, again.json()["id"]) == (200, run)
        assert again.json()["status"] in ("completed", "failed")
        assert await connection.fetchval("SELECT count(*) FROM runs") == 1
        (call,) = (await second.http.get(f"/v1/function-calls?run_id={run}")).json()["data"]
        assert call["status"] == "aborted"
    await connection.close()
