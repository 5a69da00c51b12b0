"""The way to the database is held up, cut, or lost without a word: runs pause, and go on where they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.adapters.db import run_store
from app.adapters.embedded.postgres import EmbeddedPostgres
from tests.support.polling import until, until_true
from tests.support.relay import Relay
from tests.support.service import Service, running, text_by_offset
from tests.system.test_database import kill

pytestmark = pytest.mark.anyio

WORDS = 60
PACED: list[dict[str, Any]] = [step for i in range(WORDS) for step in ({"text": f"w{i} "}, {"wait_ms": 20})]
TEXT = "".join(f"w{i} " for i in range(WORDS))


@pytest.fixture
async def behind(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Service, Relay, Service]]:
    """A service behind a relay, the relay, and a rival that would take over what seems to be lost."""
    monkeypatch.setattr(run_store, "PATIENCE_S", 3.0)
    monkeypatch.setattr(run_store, "LEASE_PATIENCE_S", 1.5)
    async with (
        Relay(database_url) as relay,
        running(relay.url, lease_ms=6_000) as service,
        running(database_url, lease_ms=6_000) as rival,
    ):
        yield service, relay, rival


async def begun(service: Service) -> tuple[list[dict[str, Any]], asyncio.Task[list[dict[str, Any]]]]:
    """Runs in the middle of their streams, and a client that follows the first one to its end."""
    await service.scripted("paced", [*PACED, {"end": "stop"}])
    runs = [await service.started(await service.branch(chat_model="paced")) for _ in range(4)]
    watching = asyncio.Event()

    async def follow() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        async for frame in service.stream("GET", f"/v1/runs/{runs[0]['id']}/events"):
            if frame.event == "TOKEN":
                watching.set()
            if frame.event == "stream.end":
                return seen
            seen.append(frame.data)
        raise AssertionError("the stream was cut")

    followed = asyncio.create_task(follow())
    await watching.wait()
    return runs, followed


async def whole(
    service: Service, runs: list[dict[str, Any]], followed: asyncio.Task[list[dict[str, Any]]]
) -> None:
    """Every run has ended as if nothing had been, in the process that began it."""
    for run in runs:

        async def answers(run_id: str = run["id"]) -> bool:
            return (await service.http.get(f"/v1/runs/{run_id}/events?limit=1")).status_code != 503

        await until_true(
            answers
        )  # a connection that is lost is found out by somebody, who is told to ask again
        ended = await service.ended(run["id"])
        assert (ended["status"], ended["result"]) == ("completed", TEXT)
        events = await service.events(run["id"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert text_by_offset(events) == TEXT
        assert "RUN_RECOVERED" not in {event["type"] for event in events}
    assert await followed == await service.events(runs[0]["id"])


async def test_a_network_that_is_held_up(behind: tuple[Service, Relay, Service]) -> None:
    service, relay, rival = behind
    runs, followed = await begun(service)
    relay.hold()
    before = service.made.recorder.commits
    await asyncio.sleep(2)  # shorter than the lease, and longer than several beats
    assert service.made.recorder.commits <= before + 1
    relay.release()
    await whole(service, runs, followed)
    assert rival.made.recorder.ends == 0


async def test_a_network_that_is_cut(behind: tuple[Service, Relay, Service]) -> None:
    service, relay, rival = behind
    runs, followed = await begun(service)
    relay.cut(refuse=True)
    await until(lambda: service.made.recorder.paused)
    down = await service.http.get("/readyz")
    assert down.status_code == 503
    assert {fault["code"] for fault in down.json()["errors"]} == {"database", "partitions", "recorder"}
    assert (await service.http.get("/healthz")).status_code == 200
    refused = await service.http.post(
        f"/v1/branches/{runs[0]['branch_id']}/operate", json={"instruction": "more"}
    )
    assert (refused.status_code, refused.json()["retryable"]) == (503, True)
    relay.release()
    await whole(service, runs, followed)

    async def ready() -> bool:
        return (await service.http.get("/readyz")).status_code == 200

    await until_true(ready)
    assert rival.made.recorder.ends == 0


async def test_connections_that_are_lost_without_a_word(
    behind: tuple[Service, Relay, Service],
) -> None:
    service, relay, rival = behind
    runs, followed = await begun(service)
    relay.forget()
    await whole(service, runs, followed)
    assert rival.made.recorder.ends == 0


@pytest.mark.embedded
async def test_after_an_outage_beyond_all_leases_runs_stay_where_they_are(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "db", initdb_options=["--no-sync"])
    await asyncio.to_thread(server.start)
    try:
        async with (
            running(server.url, lease_ms=3_000) as service,
            running(server.url, lease_ms=3_000) as rival,
        ):
            runs, followed = await begun(service)
            kill(server)
            await until(lambda: service.made.recorder.paused)
            await asyncio.sleep(4)  # longer than a lease
            await asyncio.to_thread(server.revive)
            await whole(service, runs, followed)
            assert rival.made.recorder.ends == 0
    finally:
        await asyncio.to_thread(server.stop)


@pytest.mark.embedded
async def test_a_server_without_a_free_connection(tmp_path: Path) -> None:
    server = EmbeddedPostgres(
        tmp_path / "db", settings={"max_connections": "25"}, initdb_options=["--no-sync"]
    )
    await asyncio.to_thread(server.start)
    try:
        async with running(server.url) as service:
            runs, followed = await begun(service)
            taken = [await asyncpg.connect(server.url)]
            while not service.made.recorder.paused:
                with suppress(asyncpg.TooManyConnectionsError):
                    while True:
                        taken.append(await asyncpg.connect(server.url))
                await taken[0].execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'branchline'"
                )
            assert (await service.http.get("/readyz")).status_code == 503
            for connection in taken:
                await connection.close()
            await whole(service, runs, followed)
            assert (await service.http.get("/readyz")).status_code == 200
    finally:
        await asyncio.to_thread(server.stop)
