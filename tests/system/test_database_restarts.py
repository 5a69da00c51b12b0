"""The database is restarted in good order under two replicas: runs and their clients go on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import httpx
import pytest

from app.adapters.embedded.postgres import EmbeddedPostgres
from tests.support.polling import until, until_true
from tests.support.service import Service, frames, running, text_by_offset

pytestmark = [pytest.mark.anyio, pytest.mark.embedded]

Json = dict[str, Any]
WORDS = 60
PACED: list[Json] = [step for i in range(WORDS) for step in ({"text": f"w{i} "}, {"wait_ms": 20})]
QUICK: list[Json] = [{"text": "Hello"}, {"end": "stop"}]
MADE: Json = {"name": "made once"}
TEXT = "".join(f"w{i} " for i in range(WORDS))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    made = EmbeddedPostgres(tmp_path / "db", initdb_options=["--no-sync"])
    await asyncio.to_thread(made.start)
    yield made
    await asyncio.to_thread(made.stop)


class Postmaster:
    """The server's first process, which is told to shut down as `pg_ctl stop` tells it."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._file = server.log.parent / "pgdata" / "postmaster.pid"
        self._pid = int(self._file.read_text().split()[0])

    def told(self, number: signal.Signals) -> None:
        """SIGTERM is smart, SIGINT fast."""
        os.kill(self._pid, number)

    def refuses(self) -> bool:
        """Whether it takes no new connection; those that there are may go on."""
        return not self._server.is_ready()

    def gone(self) -> bool:
        """Whether it has shut down."""
        return self.refuses() and not self._file.exists()


async def followed(service: Service, run_id: str, watching: asyncio.Event) -> list[Json]:
    """What a client has seen of a run that comes back as often as it is cut off."""
    seen: list[Json] = []
    while True:
        headers = {"Accept": "text/event-stream"}
        if seen:
            headers["Last-Event-ID"] = f"{run_id}:{seen[-1]['seq']}"
        try:
            async with service.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as answer:
                if answer.status_code == 200:
                    async for frame in frames(answer.aiter_lines()):
                        if frame.event == "stream.end":
                            return seen
                        seen.append(frame.data)
                        if frame.event == "TOKEN":
                            watching.set()
                else:
                    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.05)


class Others:
    """Clients that ask for this and that all the time, and for the same again where they are told to."""

    def __init__(self, *services: Service) -> None:
        self._services = services
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.refused = 0
        self.made = 0
        """Branches, each made with a key of its own."""
        self.ran: list[str] = []
        """Runs, the same."""

    async def __aenter__(self) -> Self:
        for service in self._services:
            branch = await service.branch(chat_model=await service.scripted("quick", QUICK))
            works = self._list(service), self._make(service), self._run(service, branch)
            self._tasks += map(asyncio.create_task, works)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def _list(self, service: Service) -> None:
        while not self._over.is_set():
            for path in ("/v1/branches", "/v1/runs", "/v1/models"):
                self._refuses(await service.http.get(path), 200)
                await asyncio.sleep(0.005)

    async def _make(self, service: Service) -> None:
        while not self._over.is_set():
            await self._once(service, "/v1/branches", MADE, 201)
            self.made += 1

    async def _run(self, service: Service, branch: str) -> None:
        while not self._over.is_set():
            path = f"/v1/branches/{branch}/operate"
            run = (await self._once(service, path, {"instruction": "hi"}, 200)).json()
            assert (run["status"], run["result"]) == ("completed", "Hello")
            self.ran.append(run["id"])

    async def _once(self, service: Service, path: str, body: Json, served: int) -> httpx.Response:
        key = {"Idempotency-Key": str(uuid4())}
        while True:
            answer = await service.http.post(path, json=body, headers=key)
            if not self._refuses(answer, served):
                return answer
            await asyncio.sleep(0.01)

    def _refuses(self, answer: httpx.Response, served: int) -> bool:
        """Whether it has to be asked for again."""
        if answer.status_code == served:
            return False
        assert (answer.status_code, answer.headers.get("Retry-After")) == (503, "1"), answer.text
        self.refused += 1
        return True


@pytest.mark.parametrize("how", ["fast", "smart"])
async def test_a_restart_under_two_replicas(server: EmbeddedPostgres, how: str) -> None:
    async with running(server.url) as one, running(server.url) as other:
        await one.scripted("paced", [*PACED, {"end": "stop"}])
        async with Others(one, other) as others:
            await restarted(server, how, one, other)
        assert others.refused
        names = [branch["name"] for branch in await everything(one, "/v1/branches")]
        assert names.count(MADE["name"]) == others.made
        ran = [run["id"] for run in await everything(one, "/v1/runs") if run["model"] == "quick"]
        assert sorted(ran) == sorted(others.ran)


async def restarted(server: EmbeddedPostgres, how: str, one: Service, other: Service) -> None:
    """Restart the database under runs of both replicas, each with a client at either."""
    begun = [(service, await service.branch(chat_model="paced")) for service in (one, one, other, other)]
    runs = [await service.started(branch) for service, branch in begun]
    watching = [(service, run["id"], asyncio.Event()) for run in runs for service in (one, other)]
    clients = [asyncio.create_task(followed(*client)) for client in watching]
    await asyncio.gather(*(seen.wait() for _, _, seen in watching))
    await shut_down(server, how)
    for service in (one, other):
        unready = await service.http.get("/readyz")
        assert unready.status_code == 503
        assert "database" in {fault["code"] for fault in unready.json()["errors"]}
        assert (await service.http.get("/healthz")).status_code == 200
    await until(lambda: one.made.recorder.paused and other.made.recorder.paused)
    await asyncio.to_thread(server.revive)
    for number, run in enumerate(runs):
        seen = [await client for client in clients[2 * number : 2 * number + 2]]
        await whole(one, run["id"], seen)
    for service in (one, other):
        await until_true(partial(is_ready, service))
    assert (await one.operate(runs[0]["branch_id"]))["status"] == "completed"


async def shut_down(server: EmbeddedPostgres, how: str) -> None:
    """Have it end in this way; a smart end waits for clients, which never leave: it is made a fast one."""
    postmaster = Postmaster(server)
    if how == "smart":
        postmaster.told(signal.SIGTERM)
        await until(postmaster.refuses)
    postmaster.told(signal.SIGINT)
    await until(postmaster.gone)


async def whole(service: Service, run_id: str, seen: Sequence[list[Json]]) -> None:
    """The run has ended as if nothing had been, and its clients have seen all of it once."""
    ended = await service.get(f"/v1/runs/{run_id}")
    assert (ended["status"], ended["result"]) == ("completed", TEXT)
    events = await service.events(run_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert text_by_offset(events) == TEXT
    assert "RUN_RECOVERED" not in {event["type"] for event in events}
    for told in seen:
        assert told == events


async def is_ready(service: Service) -> bool:
    """Whether it says so."""
    return (await service.http.get("/readyz")).status_code == 200


async def everything(service: Service, path: str) -> list[Json]:
    """All pages of a list."""
    found: list[Json] = []
    page: Json = {"next": None, "has_more": True}
    while page["has_more"]:
        page = (
            await service.http.get(path, params={"limit": 1000, **({"after": page["next"]} if found else {})})
        ).json()
        found += page["data"]
    return found
