"""Limits on the tokens and the money of a day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from tests.support.database import migrated
from tests.support.limits import Limited, in_one_minute
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

SAYING: list[dict[str, Any]] = [
    {"text": "hello"},
    {"usage": {"input_tokens": 40, "output_tokens": 6}},
    {"end": "stop"},
]
COST = Decimal("0.00012")
"""Of `SAYING`, in US dollars."""


@pytest.fixture(scope="module")
async def database(postgres: PostgresServer) -> AsyncIterator[str]:
    async with migrated(postgres) as url:
        yield url


@pytest.fixture(scope="module")
async def service(database: str) -> AsyncIterator[Service]:
    async with running(database) as made:
        options = {"streams": [{"attempts": [SAYING]}]}
        price = {"input": "1.5", "output": "10"}
        await made.model("priced", provider="scripted", options=options, price=price)
        yield made


@pytest.fixture
async def limited(service: Service) -> AsyncIterator[Limited]:
    made = await Limited.of(service.http)
    yield made
    await made.set(None)


async def operate(service: Service, headers: dict[str, str]) -> Any:
    branch = await service.branch(chat_model="priced")
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "go"}, headers=headers
    )
    if answer.status_code == 200:
        assert answer.json()["status"] == "completed"
    return answer


async def test_no_run_is_accepted_when_the_tokens_of_the_day_are_used(
    service: Service, limited: Limited, database: str
) -> None:
    async def day() -> tuple[list[Any], dict[str, Any]]:
        id, key = await limited.key(tokens_per_day=100)
        return [await operate(service, key) for _ in range(4)], await limited.get(id)

    answers, left = await in_one_minute(database, day)
    # The third one goes over: what it would use was not known when it was accepted.
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == [
        *("r=100", "r=54", "r=8", "r=0")
    ]
    tokens = left["tokens_per_day"]
    assert (tokens["quota"], tokens["used"], tokens["left"]) == (100, 138, 0)
    refused = answers[-1]
    problem = refused.json()
    assert (problem["code"], problem["limit"]["used"]) == ("token_limit_reached", 138)
    assert problem["violated-policies"] == ["key-tokens"]
    assert "midnight UTC" in problem["detail"]
    again_s = int(refused.headers["retry-after"])
    assert 1 <= again_s <= 86_400
    assert refused.headers["ratelimit"] in {f'"key-tokens";r=0;t={again_s - n}' for n in range(3)}
    assert refused.headers["ratelimit-policy"] == '"key-tokens";q=100;w=86400;qu="tokens"'


async def test_money_is_counted_exactly(service: Service, limited: Limited, database: str) -> None:
    async def day() -> tuple[list[Any], dict[str, Any]]:
        id, key = await limited.key(cost_per_day=str(2 * COST))
        return [await operate(service, key) for _ in range(3)], await limited.get(id)

    answers, left = await in_one_minute(database, day)
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].json()["code"] == "cost_limit_reached"
    assert left["cost_per_day"]["used"] == str(2 * COST)
    assert left["cost_per_day"]["left"] == "0"


async def test_what_was_used_before_the_limit_counts_and_the_project_counts_all(
    service: Service, limited: Limited, database: str
) -> None:
    async def day() -> list[Any]:
        id, key = await limited.key()
        _, other = await limited.key()
        before = (await limited.set(None, tokens_per_day=1_000_000))["tokens_per_day"]["used"]
        await operate(service, key)
        of_key = await limited.set(id, tokens_per_day=1_000)
        await operate(service, key)
        await operate(service, other)
        # A limit that is changed goes on from what was counted.
        changed = await limited.set(id, tokens_per_day=2_000, concurrent_runs=3)
        of_project = await limited.get(None)
        await limited.set(None)
        return [
            of_key["tokens_per_day"]["used"],
            changed["tokens_per_day"]["used"],
            of_project["tokens_per_day"]["used"] - before,
        ]

    assert await in_one_minute(database, day) == [46, 92, 138]


async def test_the_counters_agree_with_the_usage_of_the_day(service: Service, limited: Limited) -> None:
    await limited.set(None, tokens_per_day=1_000_000, cost_per_day=1_000)
    branch = await service.branch(chat_model="priced")
    for _ in range(3):
        await service.operate(branch)
    sums = (await service.get("/v1/usage?group_by=project"))["data"][0]
    used = await limited.get(None)
    assert used["tokens_per_day"]["used"] == sums["usage"]["input_tokens"] + sums["usage"]["output_tokens"]
    assert Decimal(used["cost_per_day"]["used"]) == Decimal(sums["cost"]["amount"])


async def test_where_nothing_is_limited_nothing_is_counted(
    service: Service, limited: Limited, database: str
) -> None:
    await limited.set(None, requests_per_minute=100_000)
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("TRUNCATE quota_days, quota_runs")
        await service.operate(await service.branch(chat_model="priced"))
        for table in ("quota_days", "quota_runs"):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0
    finally:
        await connection.close()
