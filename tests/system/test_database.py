"""The database dies or is cut off under running runs: they pause and go on, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.adapters.embedded.postgres import EmbeddedPostgres
from tests.support.polling import until
from tests.support.service import Service, running, text_by_offset

pytestmark = [pytest.mark.anyio, pytest.mark.embedded]

PACED: list[dict[str, Any]] = [step for i in range(60) for step in ({"text": f"w{i} "}, {"wait_ms": 20})]
TEXT = "".join(f"w{i} " for i in range(60))


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A server that the test may kill."""
    server = EmbeddedPostgres(tmp_path / "db", initdb_options=["--no-sync"])
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


@pytest.fixture
async def own_service(own_postgres: EmbeddedPostgres) -> AsyncIterator[Service]:
    """A service on it."""
    async with running(own_postgres.url) as made:
        yield made


def kill(server: EmbeddedPostgres) -> None:
    """Kill the postmaster as a crash would."""
    pid = int((server.log.parent / "pgdata" / "postmaster.pid").read_text().splitlines()[0])
    os.kill(pid, signal.SIGKILL)


async def test_runs_go_on_when_the_database_comes_back(
    own_postgres: EmbeddedPostgres, own_service: Service
) -> None:
    service = own_service
    await service.scripted("paced", [*PACED, {"end": "stop"}])
    branches = [await service.branch(chat_model="paced") for _ in range(5)]
    runs = [await service.started(branch) for branch in branches]
    watching = asyncio.Event()
    followed = asyncio.create_task(_text_of(service, runs[0]["id"], watching))
    await watching.wait()
    recorder = service.made.recorder
    kill(own_postgres)
    await until(lambda: recorder.paused)
    down = await service.http.get("/readyz")
    assert (down.status_code, down.headers["content-type"]) == (503, "application/problem+json")
    refused = await service.http.get("/v1/branches")
    assert (refused.status_code, refused.json()["retryable"]) == (503, True)
    await asyncio.to_thread(own_postgres.revive)
    await until(lambda: not recorder.paused, within_s=30)
    for run in runs:
        ended = await service.ended(run["id"])
        assert (ended["status"], ended["result"]) == ("completed", TEXT)
        events = await service.events(run["id"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert text_by_offset(events) == TEXT
    assert await followed == TEXT
    assert (await service.http.get("/readyz")).status_code == 200


async def _text_of(service: Service, run_id: str, watching: asyncio.Event) -> str | None:
    """What a follower saw in one stream, which no outage cut; `watching` is set at its first token."""
    events: list[dict[str, Any]] = []
    async for frame in service.stream("GET", f"/v1/runs/{run_id}/events"):
        if frame.event == "stream.end":
            return text_by_offset(events)
        events.append(frame.data)
        if frame.event == "TOKEN":
            watching.set()
    return None


async def test_a_flush_that_was_committed_unheard_is_not_written_twice(
    own_postgres: EmbeddedPostgres, own_service: Service
) -> None:
    """Connections are cut again and again at moments nobody chose; every log stays whole."""
    service = own_service
    await service.scripted("paced", [*PACED, {"end": "stop"}])
    branches = [await service.branch(chat_model="paced") for _ in range(4)]
    runs = [await service.started(branch) for branch in branches for _ in range(2)]
    connection = await asyncpg.connect(own_postgres.url)
    ended: set[str] = set()
    for _ in range(60):
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'branchline' AND pid <> pg_backend_pid()"
        )
        await asyncio.sleep(0.05)
        rows = await connection.fetch("SELECT id FROM runs WHERE ended_at IS NOT NULL")
        ended = {str(row["id"]) for row in rows}
        if len(ended) == len(runs):
            break
    await connection.close()
    for run in runs:
        done = await service.ended(run["id"])
        assert (done["status"], done["result"]) == ("completed", TEXT), done
        events = await service.events(run["id"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for branch in branches:
        kinds = [message["kind"] for message in await service.messages(branch)]
        assert kinds == ["instruction", "assistant_response"] * 2


FULL_DISK = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON token_blocks EXECUTE FUNCTION full_disk()
"""


@pytest.fixture
async def alone(database_url: str) -> AsyncIterator[Service]:
    """A service on a database whose tables the test may change."""
    async with running(database_url) as made:
        yield made


async def test_runs_wait_for_room_on_a_full_disk(alone: Service, database_url: str) -> None:
    service = alone
    await service.scripted("paced", [*PACED, {"end": "stop"}])
    connection = await asyncpg.connect(database_url)
    await connection.execute(FULL_DISK)
    run = await service.started(await service.branch(chat_model="paced"))
    await until(lambda: service.made.recorder.paused)
    refused = await service.http.get("/readyz")
    assert refused.status_code == 503
    assert "recorder" in refused.json()["detail"]
    await connection.execute("DROP FUNCTION full_disk CASCADE")
    ended = await service.ended(run["id"])
    assert (ended["status"], ended["result"]) == ("completed", TEXT)
    await connection.close()


REFUSAL = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE 'refused' USING ERRCODE = '23514'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON messages FOR EACH ROW WHEN (NEW.content::text LIKE '%poison%')
EXECUTE FUNCTION refuse()
"""


async def test_data_that_the_database_refuses_fails_its_run_alone(alone: Service, database_url: str) -> None:
    service = alone
    connection = await asyncpg.connect(database_url)
    await connection.execute(REFUSAL)
    await service.scripted("m", [{"text": "ok"}, {"end": "stop"}])
    branches = [await service.branch(chat_model="m") for _ in range(6)]
    runs = await asyncio.gather(
        *(
            service.operate(branch, instruction="poison" if index == 3 else "fine")
            for index, branch in enumerate(branches)
        )
    )
    assert [run["status"] for run in runs] == [*["completed"] * 3, "failed", *["completed"] * 2]
    assert runs[3]["error"]["code"] == "RECORD_REJECTED"
    events = await service.events(runs[3]["id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "RUN_FAILED"
    again = await service.operate(branches[3], instruction="fine")
    assert again["status"] == "completed"
    await connection.close()
