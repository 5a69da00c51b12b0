"""Webhook deliveries of several processes, and of one that is killed in the middle."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.polling import until
from tests.support.process import Process, serving
from tests.support.receiver import Receiver, Reply
from tests.support.service import running

pytestmark = pytest.mark.anyio

SAYING = [{"text": "hello"}, {"end": "stop"}]


async def endless(service: Process) -> str:
    """Make a branch whose model begins to speak and does not end; its id."""
    options = {"streams": [{"attempts": [[{"text": "one"}, {"wait_ms": 600_000}], SAYING]}]}
    spec = {"provider": "scripted", "model": "m", "options": options, "lifecycle": {"timeout": None}}
    await service.http.put("/v1/models/endless", json=spec)
    answer = await service.http.post("/v1/branches", json={"chat_model": "endless"})
    return str(answer.json()["id"])


async def test_what_a_killed_process_had_posted_comes_again_as_it_was(
    database_url: str, tmp_path: Path
) -> None:
    # The run goes on between the two posts: a receiver that knows the first must not miss what came since.
    async with Receiver() as receiver:
        receiver.replies["/hook"] = [Reply(after=asyncio.Event()), Reply(200)]
        hook = {"url": receiver.url("/hook"), "event_types": ["RUN_COMPLETED"]}
        async with serving(database_url, tmp_path, BRANCHLINE_WEBHOOK_TIMEOUT_S="1") as first:
            secret = (await first.http.post("/v1/webhook-endpoints", json=hook)).json()["secret"]
            run = await first.started(await endless(first), "operate", {"instruction": "go"})
            await until(lambda: receiver.received)
            first.process.kill()
            await first.process.wait()
        async with serving(database_url, tmp_path, BRANCHLINE_WEBHOOK_TIMEOUT_S="1") as second:
            await second.follow(run, "RUN_COMPLETED")
            await until(lambda: receiver.received[-1].data["ended"], within_s=60)
        lost, again, *rest = receiver.received
        assert lost.data["callbacks"][0]["name"] == "on_start"
        assert (again.id, again.body) == (lost.id, lost.body)
        assert rest
        for post in receiver.received:
            post.verify(secret)
        assert rest[-1].data["events"][-1]["meta"]["status"] == "completed"
        assert len({post.id for post in receiver.received}) == len(receiver.received) - 1


async def test_several_processes_share_the_deliveries(database_url: str) -> None:
    async with Receiver() as receiver, AsyncExitStack() as stack:
        services = [await stack.enter_async_context(running(database_url)) for _ in range(2)]
        made = await services[0].http.post("/v1/webhook-endpoints", json={"url": receiver.url("/hook")})
        assert made.status_code == 201
        model = await services[0].scripted("hello", SAYING)

        async def one(number: int) -> dict[str, Any]:
            service = services[number % 2]
            return await service.operate(await service.branch(chat_model=model))

        runs = await asyncio.gather(*(one(number) for number in range(20)))
        ended = Counter[str]()

        def all_ended() -> bool:
            ended.clear()
            ended.update(post.data["run_id"] for post in receiver.received if post.data["ended"])
            return set(ended) == {run["id"] for run in runs}

        await until(all_ended, within_s=30)
        assert set(Counter(post.id for post in receiver.received).values()) == {1}
        told = Counter(one["run_id"] for one in receiver.callbacks("/hook"))
        assert set(told.values()) == {2}
        assert set(told) == set(ended)
