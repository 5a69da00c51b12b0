"""Limits of keys and projects at work: what is let in, what is refused, and what both are told."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.database import migrated
from tests.support.limits import Limited, in_one_minute
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

SAYING = [{"text": "hello"}, {"usage": {"input": 30, "output": 12}}, {"end": "stop"}]
ENDLESS = [{"text": "one"}, {"wait_ms": 600_000}, {"end": "stop"}]


@dataclass(frozen=True)
class Stage:
    """A service, and what is limited in it."""

    service: Service
    limited: Limited
    database_url: str


@pytest.fixture(scope="module")
async def stage(postgres: PostgresServer) -> AsyncIterator[Stage]:
    async with migrated(postgres) as url, running(url) as service:
        yield Stage(service, await Limited.of(service.http), url)


@pytest.fixture
async def unlimited(stage: Stage) -> AsyncIterator[None]:
    """The project has no limits afterwards."""
    yield
    await stage.limited.set(None)


async def test_a_minute_lets_in_as_many_requests_as_it_may(stage: Stage) -> None:
    async def burst() -> list[httpx.Response]:
        _, key = await stage.limited.key(requests_per_minute=7)
        return await asyncio.gather(*(stage.service.http.get("/v1/branches", headers=key) for _ in range(20)))

    answers = await in_one_minute(stage.database_url, burst)
    assert Counter(answer.status_code for answer in answers) == {200: 7, 429: 13}
    for answer in answers:
        assert answer.headers["ratelimit-policy"] == '"key-requests";q=7;w=60'
    refused = next(answer for answer in answers if answer.status_code == 429)
    state = re.fullmatch(r'"key-requests";r=0;t=(\d+)', refused.headers["ratelimit"])
    assert state
    assert 1 <= int(state[1]) <= 60
    assert 0 <= int(refused.headers["retry-after"]) - int(state[1]) <= 2
    problem = refused.json()
    assert (problem["code"], problem["retryable"]) == ("request_limit_reached", True)
    assert problem["violated-policies"] == ["key-requests"]
    assert problem["limit"] == {
        "owner": "key",
        "name": "requests_per_minute",
        "quota": 7,
        "used": 7,
        "resets_in_s": int(refused.headers["retry-after"]),
    }


async def test_what_is_left_is_told_with_every_answer(stage: Stage) -> None:
    async def some() -> list[httpx.Response]:
        _, key = await stage.limited.key(requests_per_minute=3)
        paths = ("/v1/branches", "/v1/branches/none", "/v1/projects")
        return [await stage.service.http.get(path, headers=key) for path in paths]

    answers = await in_one_minute(stage.database_url, some)
    assert [answer.status_code for answer in answers] == [200, 404, 403]
    assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == ["r=2", "r=1", "r=0"]


async def test_without_a_limit_nothing_is_told(stage: Stage) -> None:
    _, key = await stage.limited.key()
    answer = await stage.service.http.get("/v1/branches", headers=key)
    assert not {"ratelimit", "ratelimit-policy"} & answer.headers.keys()


async def test_the_limits_of_a_project_hold_for_its_keys_together(stage: Stage, unlimited: None) -> None:
    http = stage.service.http

    async def some() -> list[httpx.Response]:
        _, first = await stage.limited.key(requests_per_minute=10)
        _, second = await stage.limited.key()
        await stage.limited.set(None)
        await stage.limited.set(None, requests_per_minute=4)
        answers = [
            await http.get("/v1/branches", headers=headers) for headers in (first, second, {}, first, first)
        ]
        await stage.limited.set(None)
        return [*answers, await http.get("/v1/branches", headers=first)]

    answers = await in_one_minute(stage.database_url, some)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429, 200]
    assert answers[1].headers["ratelimit"].startswith('"project-requests";r=2;')
    assert answers[2].headers["ratelimit"].startswith('"project-requests";r=1;')
    assert answers[3].headers["ratelimit-policy"] == '"key-requests";q=10;w=60, "project-requests";q=4;w=60'
    refused = answers[4].json()
    assert (refused["limit"]["owner"], refused["violated-policies"]) == ("project", ["project-requests"])
    # What the project refused is not taken from the key.
    assert answers[5].headers["ratelimit"].startswith('"key-requests";r=7;')


async def test_limits_can_be_read_and_set_when_all_requests_are_used_up(stage: Stage) -> None:
    async def some() -> list[httpx.Response]:
        id, key = await stage.limited.key("admin", "read", requests_per_minute=1)
        path, http = stage.limited.path(id), stage.service.http
        return [
            await http.get("/v1/branches", headers=key),
            await http.get("/v1/branches", headers=key),
            await http.get("/v1/limits", headers=key),
            await http.get(path, headers=key),
            await http.put(path, headers=key, json={}),
            await http.get("/v1/branches", headers=key),
        ]

    answers = await in_one_minute(stage.database_url, some)
    assert [answer.status_code for answer in answers] == [200, 429, 200, 200, 200, 200]
    own, of_project = answers[2].json()["data"]
    assert (own["requests_per_minute"]["left"], of_project["requests_per_minute"]) == (0, None)


async def endless(stage: Stage, branches: int = 1) -> list[str]:
    """Branches whose runs do not end by themselves."""
    await stage.service.model(
        "endless",
        provider="scripted",
        options={"streams": [{"attempts": [ENDLESS]}]},
        lifecycle={"timeout": None},
    )
    return [await stage.service.branch(chat_model="endless") for _ in range(branches)]


async def start(stage: Stage, branch: str, headers: dict[str, str], **more: str) -> httpx.Response:
    return await stage.service.http.post(
        f"/v1/branches/{branch}/operate",
        json={"instruction": "go"},
        headers={"Prefer": "respond-async", **headers, **more},
    )


async def stop(stage: Stage, run: dict[str, Any]) -> None:
    """Cancel a run, and wait until it has ended."""
    answer = await stage.service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert answer.status_code in (200, 202)
    await stage.service.ended(run["id"])


async def test_of_many_at_the_last_permitted_runs_as_many_as_may_get_in(stage: Stage) -> None:
    id, key = await stage.limited.key(concurrent_runs=5)
    first, *branches = await endless(stage, 33)
    accepted = await start(stage, first, key)
    assert accepted.headers["ratelimit"] == '"key-runs";r=4'
    one = accepted.json()
    answers = await asyncio.gather(*(start(stage, branch, key) for branch in branches))
    assert Counter(answer.status_code for answer in answers) == {202: 4, 429: 28}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["code"] == "run_limit_reached"
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["ratelimit"] == '"key-runs";r=0'
    assert refused.headers["ratelimit-policy"] == '"key-runs";q=5;qu="concurrent-runs"'
    assert (await stage.limited.get(id))["concurrent_runs"] == {
        "quota": 5,
        "used": 5,
        "left": 0,
        "resets_in_s": None,
    }
    await stop(stage, one)
    again = await asyncio.gather(*(start(stage, branch, key) for branch in branches))
    assert Counter(answer.status_code for answer in again) == {202: 1, 429: 31}
    for answer in (*answers, *again):
        if answer.status_code == 202:
            await stop(stage, answer.json())
    assert (await stage.limited.get(id))["concurrent_runs"]["used"] == 0


async def test_runs_that_queue_count_and_a_repeat_of_an_accepted_request_does_not(stage: Stage) -> None:
    _, key = await stage.limited.key(concurrent_runs=2)
    (branch,) = await endless(stage)
    once = {"Idempotency-Key": "of-the-limits"}
    first = await start(stage, branch, key, **once)
    second = await start(stage, branch, key)
    assert [answer.json()["status"] for answer in (first, second)] == ["running", "queued"]
    assert (await start(stage, branch, key)).status_code == 429
    repeated = await start(stage, branch, key, **once)
    assert (repeated.status_code, repeated.headers["idempotency-replayed"]) == (202, "true")
    assert repeated.json()["id"] == first.json()["id"]
    for run in (second, first):
        await stop(stage, run.json())


async def test_runs_from_before_a_limit_count(stage: Stage) -> None:
    id, key = await stage.limited.key()
    (branch, other) = await endless(stage, 2)
    run = (await start(stage, branch, key)).json()
    assert (await stage.limited.set(id, concurrent_runs=1))["concurrent_runs"]["used"] == 1
    assert (await start(stage, other, key)).json()["code"] == "run_limit_reached"
    await stop(stage, run)
    voters = {"instruction": "go", "voters": ["endless", "endless"]}
    headers = {"Prefer": "respond-async", **key}
    without_branch = [
        await stage.service.http.post("/v1/consensus", json=voters, headers=headers) for _ in range(2)
    ]
    assert [answer.status_code for answer in without_branch] == [202, 429]
    await stop(stage, without_branch[0].json())
    assert (await stage.limited.set(id, concurrent_runs=0))["concurrent_runs"]["left"] == 0
    assert (await start(stage, other, key)).status_code == 429
