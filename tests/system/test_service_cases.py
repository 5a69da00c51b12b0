"""Failures from the field of services that stream: readers that break off or stay, ends that race."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.polling import until
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


async def test_v08_what_has_ended_is_not_cancelled(service: Service) -> None:
    model = await service.scripted("ended", [{"text": "a"}, {"end": "stop"}])
    run = await service.operate(await service.branch(chat_model=model))
    answer = await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert answer.status_code == 409
    assert await service.get(f"/v1/runs/{run['id']}") == run
