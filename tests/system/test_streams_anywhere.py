"""Event streams of any process: cut at random and resumed elsewhere, without hints, read slowly, left."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import asyncpg
import pytest

from app.adapters.db import hints
from app.api import sse
from app.services import elsewhere
from tests.support.database import migrated
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running, text_by_offset

pytestmark = pytest.mark.anyio

CUTS = 1_000


@pytest.fixture(scope="module")
async def pair(postgres: PostgresServer) -> AsyncIterator[tuple[Service, Service]]:
    """Two processes over one database."""
    async with migrated(postgres) as url, running(url) as one, running(url) as other:
        yield one, other


async def some_of(service: Service, run_id: str, after: int, most: int) -> list[dict[str, Any]]:
    """At most so many events after a cursor, from a stream that is then cut."""
    seen: list[dict[str, Any]] = []
    headers = {"Last-Event-ID": f"{run_id}:{after}"} if after else {}
    async with aclosing(service.stream("GET", f"/v1/runs/{run_id}/events", headers=headers)) as stream:
        async for frame in stream:
            if frame.event == "stream.end":
                break
            seen.append(frame.data)
            if len(seen) >= most:
                break
    return seen


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_thousand_cuts_make_no_difference(pair: tuple[Service, Service]) -> None:
    """Some readers are cut while the run goes on, some later; they go on at the one process or the other."""
    chance = random.Random(7)
    steps = [step for i in range(600) for step in ({"text": f"w{i} "}, {"wait_ms": 4})]
    here, there = pair
    run = await here.started(
        await here.branch(chat_model=await here.scripted("long", [*steps, {"end": "stop"}]))
    )
    cuts = 0

    async def read() -> list[dict[str, Any]]:
        nonlocal cuts
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["type"] != "RUN_COMPLETED":
            after = seen[-1]["seq"] if seen else 0
            seen += await some_of(chance.choice(pair), run["id"], after, chance.randint(1, 12))
            cuts += 1
        return seen

    live = await asyncio.gather(*(read() for _ in range(4)))
    while cuts < CUTS:
        live.append(await read())
    events = await there.events(run["id"])
    assert text_by_offset(events) == "".join(f"w{i} " for i in range(600))
    for seen in live:
        assert seen == events


@pytest.mark.parametrize(
    ("again_s", "deaf_look_s"), [(1.0, 60.0), (60.0, 0.05)], ids=["heard again", "looked for"]
)
async def test_large_events_and_lost_hints_reach_a_follower(
    database_url: str, monkeypatch: pytest.MonkeyPatch, again_s: float, deaf_look_s: float
) -> None:
    """Hints name runs and carry nothing; what comes while nobody listens needs no other event to be seen."""
    monkeypatch.setattr(hints, "AGAIN_S", again_s)
    monkeypatch.setattr(elsewhere, "DEAF_LOOK_S", deaf_look_s)
    monkeypatch.setattr(elsewhere, "LOOK_S", 60.0 if again_s < deaf_look_s else 0.05)
    large = "ä€😀" * 2_300
    assert len(large.encode()) > 20_000
    words = [large, "two", "three", "four", "five"]
    script: list[dict[str, Any]] = [
        {"text": "one"},
        {"wait_ms": 500},
        *({"text": word} for word in words),
        {"wait_ms": 60_000},
    ]
    async with running(database_url) as here, running(database_url) as there:
        carriers = [service.made.app.state.running.runs._hints for service in (here, there)]
        await until(lambda: not any(carrier.deaf for carrier in carriers))
        run = await here.started(await here.branch(chat_model=await here.scripted("large", script)))
        seen: list[dict[str, Any]] = []
        async with aclosing(there.stream("GET", f"/v1/runs/{run['id']}/events")) as stream:
            async for frame in stream:
                seen.append(frame.data)
                if frame.event == "TOKEN" and frame.data["meta"]["text"] == "one":
                    await _cut_listeners(database_url)
                    await until(lambda: all(carrier.deaf for carrier in carriers))
                if frame.event == "TOKEN" and frame.data["meta"]["text"] == "five":
                    break
        await here.http.post(f"/v1/runs/{run['id']}/cancel")
        assert (await here.ended(run["id"]))["status"] == "cancelled"
        assert (await here.events(run["id"]))[: len(seen)] == seen


async def _cut_listeners(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    cut = await connection.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
        "AND (query LIKE 'LISTEN%' OR query LIKE 'SELECT pg_notify%') AND pid <> pg_backend_pid()"
    )
    await connection.close()
    assert cut == 2


async def connected(service: Service, path: str, *, buffer: int | None = None) -> socket.socket:
    """A connection over which a stream has been asked for, and nothing read of it yet."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setblocking(False)
    if buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await loop.sock_connect(connection, (host, int(port)))
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n\r\n"
    await loop.sock_sendall(connection, request.encode())
    return connection


async def test_a_thousand_readers_that_vanish_leave_nothing(pair: tuple[Service, Service]) -> None:
    here, there = pair
    run = await here.started(
        await here.branch(chat_model=await here.scripted("idle", [{"text": "one"}, {"wait_ms": 600_000}]))
    )
    path = f"/v1/runs/{run['id']}/events"
    watches = there.made.app.state.running.runs._elsewhere._watches
    await until(lambda: not watches)
    before = len(asyncio.all_tasks())
    for _ in range(10):
        readers = [await connected(there, path) for _ in range(100)]
        await until(lambda: watches)
        for reader in readers:
            # Closed with a reset, as by a machine that knows of no such connection any more.
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            reader.close()
    await until(lambda: not watches and len(asyncio.all_tasks()) <= before, within_s=60)
    await here.http.post(f"/v1/runs/{run['id']}/cancel")


async def test_who_reads_slowly_is_dropped_and_slows_nobody(
    pair: tuple[Service, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads a byte now and then while 50,000 events come; it holds little, and resumes where it was."""
    monkeypatch.setattr(sse, "STALLED_S", 0.5)
    here, there = pair
    words = [{"text": f"w{i} "} for i in range(50_000)]
    model = await here.scripted("many", [{"text": "go "}, {"wait_ms": 500}, *words, {"end": "stop"}])
    run = await here.started(await here.branch(chat_model=model))
    path = f"/v1/runs/{run['id']}/events"
    slow = [await connected(service, path, buffer=4_096) for service in pair]
    dribbling = asyncio.gather(*(_dribble(reader) for reader in slow))
    whole = [frame.data async for frame in there.stream("GET", path)][:-1]
    assert (whole[-1]["type"], len(whole) > 50_000) == ("RUN_COMPLETED", True)
    assert len(text_by_offset(whole)) == 3 + sum(len(word["text"]) for word in words)
    for received in await dribbling:
        ids = re.findall(rb"^id: (\S+):(\d+)\n", received, re.MULTILINE)
        last = int(ids[-1][1])
        # Only what fits between the two programs, some megabytes, was ever made for it.
        assert 0 < last < 0.8 * len(whole)
        assert await some_of(here, run["id"], last, 5) == whole[last : last + 5]


async def _dribble(reader: socket.socket) -> bytes:
    """A byte at a time, until the other side gives up; then what had been sent before that."""
    loop = asyncio.get_running_loop()
    received = b""
    with contextlib.suppress(ConnectionError):
        for _ in range(20):
            received += await loop.sock_recv(reader, 1)
            await asyncio.sleep(0.1)
        while piece := await loop.sock_recv(reader, 65_536):
            received += piece
    reader.close()
    return received


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_of_many_writers_at_once_no_event_is_passed_over(pair: tuple[Service, Service]) -> None:
    """Sixteen runs of two processes commit as it comes; each is followed at the one that has not got it."""
    model = await pair[0].scripted("busy", [*({"text": f"w{i} "} for i in range(200)), {"end": "stop"}])

    async def one(number: int) -> None:
        writer, reader = pair[number % 2], pair[(number + 1) % 2]
        run = await writer.started(await writer.branch(chat_model=model))
        seen = [frame.data async for frame in reader.stream("GET", f"/v1/runs/{run['id']}/events")][:-1]
        assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
        assert sum(event["type"] == "TOKEN" for event in seen) == 200
        assert seen == await writer.events(run["id"])

    for _ in range(20):
        await asyncio.gather(*(one(number) for number in range(16)))
