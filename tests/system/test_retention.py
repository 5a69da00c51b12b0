"""Logs go when their time is over, and nothing else does: not what is active, held, or still to be told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.adapters.db.engine import make_engine
from app.adapters.db.holds import SWEEP
from app.adapters.db.partitions import partitions, week_of
from app.adapters.db.retention import sweep
from app.house_wiring import keep_house
from app.services.background import background
from tests.support.ambient import FakeClock
from tests.support.clients import Clients
from tests.support.polling import until_true
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

DAY_MS = 24 * 3600 * 1000
SCRIPT = [{"text": "hello "}, {"text": "world"}, {"end": "stop"}]
OPERATOR = "the operator's key of the tests"


@pytest.fixture
async def service(database_url: str) -> AsyncIterator[Service]:
    """A service on a database from which the test drops things."""
    async with running(database_url) as made:
        yield made


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """Connections to the same database."""
    made = make_engine(database_url)
    yield made
    await made.dispose()


def in_days(days: int) -> int:
    """The time so many days from now."""
    return int(time.time() * 1000) + days * DAY_MS


async def swept(engine: AsyncEngine, *, on: int, days: int | None) -> tuple[bool, int]:
    """Sweep so many days from now: whether this week is gone then, and how many logs are by themselves."""
    found = await sweep(engine, now_ms=in_days(on), days=days)
    async with engine.connect() as connection:
        return week_of(in_days(0)) not in await partitions(connection), found.runs


KEPT, DROPPED = (False, 0), (True, 0)


async def home(service: Service) -> str:
    """The path of the one project."""
    return f"/v1/projects/{(await service.get('/v1/projects'))['data'][0]['id']}"


async def changed(service: Service, path: str, **body: Any) -> Any:
    """What a PATCH makes of it."""
    answer = await service.http.patch(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ended(service: Service) -> dict[str, Any]:
    """A run that is over, on a branch of its own."""
    branch = await service.branch(chat_model=await service.scripted("m", SCRIPT))
    return await service.operate(branch)


async def events_of(service: Service, run: dict[str, Any], **how: Any) -> Any:
    return await service.http.get(f"/v1/runs/{run['id']}/events", **how)


async def test_a_week_that_nobody_needs_is_dropped(
    service: Service, engine: AsyncEngine, database_url: str
) -> None:
    run = await ended(service)
    assert await swept(engine, on=40, days=None) == KEPT
    assert await swept(engine, on=40, days=60) == KEPT
    connection = await asyncpg.connect(database_url)
    week = f"events_w{week_of(in_days(0))}"
    assert await connection.fetchval("SELECT to_regclass($1)", week) is not None
    assert await swept(engine, on=40, days=30) == DROPPED
    assert await connection.fetchval("SELECT to_regclass($1)", week) is None
    await connection.close()
    assert (await events_of(service, run)).status_code == 410


async def test_housekeeping_drops_what_is_old(service: Service, engine: AsyncEngine) -> None:
    run = await ended(service)
    clock = FakeClock(in_days(40))

    async def gone() -> bool:
        return bool((await events_of(service, run)).status_code == 410)

    async with background(keep_house(engine, clock, 60, pause_s=0.01)):
        await until_true(lambda: _has_partition(engine, week_of(clock.now_ms) + 4))
        assert not await gone()
    async with background(keep_house(engine, clock, 30, pause_s=0.01)):
        await until_true(gone)


async def _has_partition(engine: AsyncEngine, week: int) -> bool:
    async with engine.connect() as connection:
        return week in await partitions(connection)


async def test_a_run_without_its_log_tells_what_it_came_to(service: Service, engine: AsyncEngine) -> None:
    run = await ended(service)
    conversation = await service.messages(run["branch_id"])
    await swept(engine, on=40, days=30)
    assert await service.get(f"/v1/runs/{run['id']}") == run
    assert run["result"] == "hello world"
    assert await service.messages(run["branch_id"]) == conversation
    last = f"{run['id']}:{run['last_seq']}"
    stream = {"Accept": "text/event-stream"}
    for how in (
        {},
        {"headers": stream},
        {"headers": {**stream, "Last-Event-ID": f"{run['id']}:2"}},
        {"params": {"after": "3"}},
        {"params": {"types": "TOKEN"}},
        {"params": {"view": "partial"}},
        {"params": {"view": "callbacks"}},
    ):
        gone = await events_of(service, run, **how)
        assert (gone.status_code, gone.json()["code"]) == (410, "events_gone"), how
        assert gone.json()["earliest_id"] == last
    text = await service.http.get(f"/v1/runs/{run['id']}/text")
    assert (text.status_code, text.json()["earliest_id"]) == (410, last)
    at_end = await events_of(service, run, params={"after": last})
    assert at_end.json() == {"data": [], "has_more": False, "next": None}
    assert (await events_of(service, run, headers={**stream, "Last-Event-ID": last})).status_code == 204
    ahead = await events_of(service, run, params={"after": str(run["last_seq"] + 1)})
    assert ahead.status_code == 400


async def test_a_project_may_keep_its_logs_for_a_shorter_time(database_url: str, engine: AsyncEngine) -> None:
    async with running(database_url, bootstrap_key=OPERATOR) as service:
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        kept = await ended(service)
        made = await service.http.post("/v1/projects", json={"name": "brief"})
        keys = f"/v1/projects/{made.json()['id']}/keys"
        scopes = ["read", "run", "admin"]
        key = (await service.http.post(keys, json={"name": "k", "scopes": scopes})).json()["key"]
        service.http.headers["Authorization"] = f"Bearer {key}"
        runs = [await ended(service) for _ in range(3)]
        shown = await changed(service, f"/v1/projects/{made.json()['id']}", retention_days=2)
        assert shown["retention_days"] == 2
        assert await swept(engine, on=1, days=None) == KEPT
        assert await swept(engine, on=3, days=None) == (False, 3)
        assert await swept(engine, on=3, days=None) == KEPT
        for run in runs:
            assert (await events_of(service, run)).status_code == 410
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        assert len(await service.events(kept["id"])) == kept["last_seq"]


async def test_the_settings_age_counts_where_a_project_says_nothing(
    service: Service, engine: AsyncEngine
) -> None:
    run = await ended(service)
    path = await home(service)
    await changed(service, path, retention_days=100)
    assert await swept(engine, on=40, days=30) == KEPT
    await changed(service, path, retention_days=None)
    assert await swept(engine, on=40, days=30) == DROPPED
    assert (await events_of(service, run)).status_code == 410


async def test_what_waits_keeps_its_log_and_the_others_of_its_week_go(
    service: Service, engine: AsyncEngine
) -> None:
    over = await ended(service)
    clients = Clients(service.http)
    asked = {"function": await clients.tool("door"), "arguments": {}}
    waiting = await clients.waiting(await service.branch(), asked)
    before = (await events_of(service, waiting)).json()
    assert await swept(engine, on=40, days=1) == (False, 1)
    assert (await events_of(service, waiting)).json() == before
    assert (await events_of(service, over)).status_code == 410
    await clients.brought(await clients.next_of(waiting["id"], 0), "open")
    done = await service.ended(waiting["id"])
    assert done["status"] == "completed"
    assert len(await service.events(waiting["id"])) == done["last_seq"]


@pytest.mark.parametrize("what", ["branch", "project"])
async def test_nothing_under_a_legal_hold_is_dropped(
    service: Service, engine: AsyncEngine, what: str
) -> None:
    run, other = await ended(service), await ended(service)
    branch = f"/v1/branches/{run['branch_id']}"
    held = branch if what == "branch" else await home(service)
    assert (await changed(service, held, legal_hold=True))["legal_hold"] is True
    assert await swept(engine, on=4000, days=1) == (False, 1 if what == "branch" else 0)
    assert len(await service.events(run["id"])) == run["last_seq"]
    assert (await events_of(service, other)).status_code == (410 if what == "branch" else 200)
    for method, path in (("DELETE", branch), ("POST", f"{branch}/purge")):
        refused = await service.http.request(method, path)
        assert (refused.status_code, refused.json()["code"]) == (409, "legal_hold")
    said = {"messages": [{"kind": "system", "content": {"text": "Be long."}}]}
    assert (await service.http.post(f"{branch}/messages", json=said)).status_code == 201
    for answer in (
        await service.http.post(f"{branch}/messages", json=said),
        await service.http.patch(branch, json={"system": None}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "legal_hold")
    assert (await changed(service, branch, name="it goes on"))["system"] == "Be long."
    assert (await changed(service, held, legal_hold=False))["legal_hold"] is False
    assert await swept(engine, on=4000, days=1) == DROPPED
    assert (await events_of(service, run)).status_code == 410
    assert (await service.http.delete(branch)).status_code == 204


async def test_a_sweep_leaves_what_is_being_put_under_a_hold(
    service: Service, engine: AsyncEngine, database_url: str
) -> None:
    run = await ended(service)
    connection = await asyncpg.connect(database_url)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", SWEEP)
        await connection.execute("UPDATE branches SET legal_hold = true")
        assert await swept(engine, on=40, days=1) == KEPT
    assert await swept(engine, on=40, days=1) == KEPT
    await connection.close()
    assert len(await service.events(run["id"])) == run["last_seq"]


@pytest.mark.parametrize("what", ["branch", "project"])
async def test_a_hold_waits_for_a_sweep(service: Service, database_url: str, what: str) -> None:
    """Else it could be answered, and the log be dropped a moment later by a sweep that had not seen it."""
    run = await ended(service)
    path = f"/v1/branches/{run['branch_id']}" if what == "branch" else await home(service)
    connection = await asyncpg.connect(database_url)

    async def waits() -> bool:
        return bool(await connection.fetchval("SELECT true FROM pg_locks WHERE NOT granted LIMIT 1"))

    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", SWEEP)
        setting = asyncio.create_task(changed(service, path, legal_hold=True))
        await until_true(waits)
        assert not setting.done()
    assert (await setting)["legal_hold"] is True
    await connection.close()


async def test_a_week_in_use_is_left_to_the_next_sweep(
    service: Service, engine: AsyncEngine, database_url: str
) -> None:
    run = await ended(service)
    connection = await asyncpg.connect(database_url)
    async with connection.transaction():
        await connection.fetch("SELECT * FROM events")
        assert await swept(engine, on=40, days=30) == (False, 1)
    await connection.close()
    assert await swept(engine, on=40, days=30) == DROPPED
    assert (await events_of(service, run)).status_code == 410


async def test_what_a_webhook_is_still_to_be_told_of_is_kept(database_url: str, engine: AsyncEngine) -> None:
    async with running(database_url, allowed_hosts=("127.0.0.1",), webhook_pauses_s=(3600,)) as service:
        hook = {"url": "http://127.0.0.1:9/", "event_types": ["RUN_COMPLETED"]}
        endpoint = (await service.http.post("/v1/webhook-endpoints", json=hook)).json()["id"]
        run = await ended(service)
        assert await swept(engine, on=40, days=1) == KEPT
        assert len(await service.events(run["id"])) == run["last_seq"]
        assert (await service.http.delete(f"/v1/webhook-endpoints/{endpoint}")).status_code == 204
        assert await swept(engine, on=40, days=1) == DROPPED
