"""More requests than connections while the database is slow: each is served or refused, and runs go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import asyncpg
import httpx
import pytest

from app.adapters.db import engine
from tests.support.polling import until_true
from tests.support.relay import Relay
from tests.support.service import Service, running, text_by_offset

pytestmark = pytest.mark.anyio

WAIT_S: Final = 0.3
"""How long a request may wait for a connection here."""
TOO_MANY = "too many requests wait for a connection to the database; try again"
WORDS = 40
PACED: list[dict[str, Any]] = [step for i in range(WORDS) for step in ({"text": f"w{i} "}, {"wait_ms": 100})]
TEXT = "".join(f"w{i} " for i in range(WORDS))


@pytest.fixture
async def slow(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Service, Relay]]:
    monkeypatch.setattr(engine, "POOL_WAIT_S", WAIT_S)
    async with Relay(database_url) as relay, running(relay.url) as service:
        yield service, relay


async def connections(database: asyncpg.Connection[Any]) -> int:
    """How many the service has."""
    found: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'branchline' "
        "AND datname = current_database()"
    )
    return found


async def warmed(service: Service, branch: str) -> None:
    """Have as many connections as are kept, and the one for exports."""
    await asyncio.gather(*(service.get("/v1/branches") for _ in range(30)))
    assert (await service.http.get(f"/v1/branches/{branch}/export")).status_code == 200


async def test_more_requests_than_connections(slow: tuple[Service, Relay], database_url: str) -> None:
    service, relay = slow
    database = await asyncpg.connect(database_url)
    await service.scripted("paced", [*PACED, {"end": "stop"}])
    branch = await service.branch(name="shown")
    await warmed(service, branch)
    runs = [await service.started(await service.branch(chat_model="paced")) for _ in range(3)]
    before, commits = await connections(database), service.made.recorder.commits
    relay.slow(0.5)  # each request is answered several times by the database: nobody is served at once
    asking = [
        asyncio.create_task(asked)
        for number in range(20)
        for asked in (
            service.http.get("/v1/branches"),
            service.http.get(f"/v1/branches/{branch}/export"),
            service.http.post("/v1/branches", json={"name": f"made {number}"}),
        )
    ]
    await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    unready = await service.http.get("/readyz")
    assert unready.status_code == 503
    assert unready.headers["Retry-After"] == "1"
    faults = {fault["code"]: fault["message"] for fault in unready.json()["errors"]}
    assert faults == dict.fromkeys(("database", "partitions"), TOO_MANY)
    answers = await asyncio.gather(*asking)
    assert service.made.recorder.commits > commits
    relay.slow(0)
    check(answers[::3], 200)
    check(answers[1::3], 200)
    made = check(answers[2::3], 201)
    stored = await database.fetchval("SELECT count(*) FROM branches WHERE name LIKE 'made %'")
    assert stored == made
    for run in runs:
        ended = await service.ended(run["id"])
        assert (ended["status"], ended["result"], ended["attempts"]) == ("completed", TEXT, 1)
        events = await service.events(run["id"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert text_by_offset(events) == TEXT
    assert (await service.http.get("/readyz")).status_code == 200
    await warmed(service, branch)

    async def as_before() -> bool:
        return await connections(database) == before

    await until_true(as_before)
    await database.close()


def check(answers: list[httpx.Response], served: int) -> int:
    """Each was served or refused, and some were both; the number of those that were served."""
    assert {answer.status_code for answer in answers} == {served, 503}
    for answer in answers:
        if answer.status_code == 503:
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.headers["Retry-After"] == "1"
            assert (answer.json()["code"], answer.json()["retryable"]) == ("unavailable", True)
            assert answer.json()["detail"].lower().rstrip(".") == TOO_MANY
        elif answer.request.url.path.endswith("/export"):
            assert b'"object":"export_end"' in answer.content
    return sum(answer.status_code == served for answer in answers)
