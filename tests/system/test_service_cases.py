"""Failures from the field of services that stream: readers that break off or stay, ends that race."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.core.events.run import RunCancelled, RunCompleted
from app.services.follow import TERMINAL_CODES
from tests.support.polling import until, until_true
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

QUIET: list[dict[str, Any]] = [{"text": "one "}, {"wait_ms": 600_000}, {"end": "stop"}]
STREAMED = {"Accept": "text/event-stream"}


async def quiet(service: Service, **settings: Any) -> str:
    """A run that says a word and is silent from then on; its events' path."""
    model = await service.scripted("quiet", QUIET)
    branch = await service.branch(chat_model=model, **settings)
    run = await service.started(branch, lifecycle={"timeout": None})
    path = f"/v1/runs/{run['id']}/events"
    async for frame in service.stream("GET", path):
        if frame.event == "TOKEN":
            break
    return path


async def test_v03_a_stream_that_broke_off_unread_begins_where_it_was_asked_to(database_url: str) -> None:
    async with running(database_url, heartbeat_s=0.02) as service:
        path = await quiet(service)
        seen = len((await service.get(path))["data"])
        for _ in range(2):  # nothing but heartbeats comes, and they are no place to go on from
            headers = {**STREAMED, "Last-Event-ID": str(seen)}
            async with service.http.stream("GET", path, headers=headers) as answer:
                lines = answer.aiter_lines()
                assert [await anext(lines) for _ in range(3)].count(": hb") >= 1
        rest = service.stream("GET", path, headers={"Last-Event-ID": str(seen)})
        await service.http.post(path.replace("/events", "/cancel"))
        frames = [frame.data async for frame in rest if frame.event != "stream.end"]
        assert frames[0]["seq"] == seen + 1
        assert frames == (await service.events(path.split("/")[3]))[seen:]


async def test_v06_streams_that_nobody_ends_hold_up_nobody(database_url: str) -> None:
    async with running(database_url) as service, AsyncExitStack() as open_streams:
        path = await quiet(service)
        branch = (await service.get(path.removesuffix("/events")))["branch_id"]
        before = len(asyncio.all_tasks())
        readers = httpx.AsyncClient(base_url=service.url, limits=httpx.Limits(), trust_env=False)
        await open_streams.enter_async_context(readers)
        for _ in range(100):
            answer = await open_streams.enter_async_context(readers.stream("GET", path, headers=STREAMED))
            assert answer.status_code == 200
        for _ in range(50):
            await service.get(f"/v1/branches/{branch}/messages")
        connection = await asyncpg.connect(database_url)
        open_by_hand = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        )
        assert await connection.fetchval(open_by_hand) == 0
        await connection.close()
        await open_streams.aclose()
        await until(lambda: len(asyncio.all_tasks()) <= before)
        await service.http.post(path.replace("/events", "/cancel"))


async def test_v08_a_cancellation_and_an_end_at_once_are_one_end(service: Service) -> None:
    ends = {"completed": "RUN_COMPLETED", "cancelled": "RUN_CANCELLED"}

    async def race(wait_ms: int) -> str:
        script: list[dict[str, Any]] = [{"text": "a"}, {"wait_ms": wait_ms}, {"end": "stop"}]
        model = await service.scripted(f"ends-{wait_ms}", script)
        run = await service.started(await service.branch(chat_model=model), lifecycle={"timeout": None})
        path = f"/v1/runs/{run['id']}"
        async for frame in service.stream("GET", f"{path}/events"):
            if frame.event == "TOKEN":
                break
        answers = await asyncio.gather(*(service.http.post(f"{path}/cancel") for _ in range(2)))
        ended = await service.ended(run["id"])
        for answer in answers:
            # 202 is the intent that was stored before the end, whichever end it came to be.
            assert answer.status_code in (202, 409) or answer.json()["status"] == ended["status"]
        late = await service.http.post(f"{path}/cancel")
        assert late.status_code == 409
        assert await service.get(path) == ended
        types = [event["type"] for event in await service.events(run["id"])]
        assert [kind for kind in types if kind in (*ends.values(), "RUN_FAILED")] == [types[-1]]
        assert types[-1] == ends[ended["status"]]
        return str(ended["status"])

    for wait_ms in range(0, 300, 12):
        await race(wait_ms)
    assert await race(600_000) == "cancelled"


async def test_v08_five_hundred_cancellations_that_race_with_ends(database_url: str) -> None:
    async with running(database_url) as service:
        await five_hundred_races(service, database_url)


async def five_hundred_races(service: Service, database_url: str) -> None:
    models = [
        await service.scripted(f"ends-{wait_ms}", [{"text": "a"}, {"wait_ms": wait_ms}, {"end": "stop"}])
        for wait_ms in (*range(0, 21, 4), 600_000)
    ]
    chance = Random(8)

    async def race(model: str, after_ms: int) -> tuple[UUID, list[httpx.Response]]:
        run = await service.started(await service.branch(chat_model=model))
        await asyncio.sleep(after_ms / 1000)
        cancel = f"/v1/runs/{run['id']}/cancel"
        return UUID(run["id"]), await asyncio.gather(*(service.http.post(cancel) for _ in range(2)))

    raced: dict[UUID, list[httpx.Response]] = {}
    for _ in range(50):
        chosen = [(chance.choice(models), chance.randrange(21)) for _ in range(10)]
        raced |= dict(await asyncio.gather(*(race(*each) for each in chosen)))

    connection = await asyncpg.connect(database_url)
    try:

        async def ended() -> bool:
            return not await connection.fetchval("SELECT count(*) FROM runs WHERE ended_at IS NULL")

        await until_true(ended, within_s=30)
        runs = {row["id"]: row["status"] for row in await connection.fetch("SELECT id, status FROM runs")}
        ends = await connection.fetch(
            """SELECT e.run_id, array_agg(e.type) AS types, bool_and(e.seq = r.last_seq) AS last
               FROM events e JOIN runs r ON r.id = e.run_id WHERE e.type = ANY($1) GROUP BY e.run_id""",
            list(TERMINAL_CODES),
        )
    finally:
        await connection.close()
    assert len(raced) == len(ends) == 500
    codes = {"completed": RunCompleted.code, "cancelled": RunCancelled.code}
    for row in ends:
        assert (row["types"], row["last"]) == ([codes[runs[row["run_id"]]]], True)
    for run_id, answers in raced.items():
        for answer in answers:
            assert answer.status_code in (202, 409) or answer.json()["status"] == runs[run_id]
    assert set(runs.values()) == set(codes)


async def test_v08_what_has_ended_is_not_cancelled(service: Service) -> None:
    model = await service.scripted("ended", [{"text": "a"}, {"end": "stop"}])
    run = await service.operate(await service.branch(chat_model=model))
    answer = await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert answer.status_code == 409
    assert await service.get(f"/v1/runs/{run['id']}") == run
