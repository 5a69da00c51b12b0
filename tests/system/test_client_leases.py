"""Several workers of one client: one of them does a call, and one result counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.acting import call
from tests.support.clients import Clients, refusal
from tests.support.database import migrated
from tests.support.polling import until_true
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

BRIEF = 0.05
"""Seconds of a lease that is to be over soon."""


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """One service for all; each test has a branch."""
    async with migrated(postgres) as url, running(url) as made:
        await Clients(made.http).tool("door", client={"lease_s": 600})
        await Clients(made.http).tool("hatch", client={"lease_s": BRIEF})
        yield made


@pytest.fixture
def clients(service: Service) -> Clients:
    return Clients(service.http)


async def work(service: Service, clients: Clients, tool: str = "door") -> dict[str, Any]:
    run = await clients.waiting(await service.branch(), call(tool))
    (found,) = await clients.work(run_id=run["id"])
    return found


async def free_again(clients: Clients, call: dict[str, Any]) -> str:
    """The token of a second worker, once the first one's lease is over."""
    taken: list[str] = []

    async def claimed() -> bool:
        answer = await clients.claim(call, lease_s=600)
        taken.extend([answer.json()["lease_token"]] if answer.status_code == 200 else [])
        return bool(taken)

    await until_true(claimed)
    return taken[0]


async def test_of_several_workers_one_has_the_call(service: Service, clients: Clients) -> None:
    call = await work(service, clients)
    answers = await asyncio.gather(*(clients.claim(call) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 7]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert (refused.json()["code"], refused.json()["retryable"]) == ("call_leased", True)
    (given,) = [answer.json() for answer in answers if answer.status_code == 200]
    assert given["arguments"] == call["arguments"]
    (shown,) = await clients.work(run_id=call["run_id"])
    assert shown["leased_until"] == given["leased_until"]
    assert given["lease_token"] not in str(shown)
    assert refusal(await clients.bring(call, output=1)) == (409, "call_leased")
    await clients.brought(call, lease_token=given["lease_token"])
    assert refusal(await clients.claim(call)) == (409, "call_not_waiting")
    assert (await service.ended(call["run_id"]))["status"] == "completed"


async def test_a_lease_is_prolonged_by_who_has_it(service: Service, clients: Clients) -> None:
    call = await work(service, clients)
    first = (await clients.claim(call, lease_s=1)).json()
    again = (await clients.claim(call, lease_s=300, lease_token=first["lease_token"])).json()
    assert again["lease_token"] == first["lease_token"]
    assert again["leased_until"] > first["leased_until"]
    other = "019a0000-0000-7000-8000-00000000000b"
    assert refusal(await clients.claim(call, lease_token=other)) == (409, "claim_lost")
    assert refusal(await clients.bring(call, output=1, lease_token=other)) == (409, "claim_lost")
    await clients.brought(call, lease_token=first["lease_token"])


async def test_a_lease_ends_before_its_call_does(service: Service, clients: Clients) -> None:
    tool = await clients.tool("gate", client={"expires_s": 60})
    call = await work(service, clients, tool)
    given = (await clients.claim(call, lease_s=86_400)).json()
    assert given["leased_until"] == given["expires_at"]
    await clients.brought(call, lease_token=given["lease_token"])


async def test_a_lease_that_is_over_is_somebody_else_s(service: Service, clients: Clients) -> None:
    call = await work(service, clients, "hatch")
    first = await clients.leased(call)
    second = await free_again(clients, call)
    assert first != second
    for answer, code in (
        (await clients.bring(call, output="late", lease_token=first), "claim_lost"),
        (await clients.bring(call, output="late"), "call_leased"),
        (await clients.claim(call, lease_token=first), "claim_lost"),
    ):
        assert refusal(answer) == (409, code)
    await clients.brought(call, "in time", lease_token=second)
    (result,) = (await service.ended(call["run_id"]))["result"]
    assert result["output"] == "in time"


@pytest.mark.parametrize("with_token", [True, False])
async def test_a_late_result_counts_if_nobody_else_has_the_call(
    service: Service, clients: Clients, with_token: bool
) -> None:
    call = await work(service, clients)
    token = await clients.leased(call, lease_s=BRIEF)
    body = {"lease_token": token} if with_token else {}

    async def taken() -> bool:
        return (await clients.bring(call, output="late", **body)).status_code == 200

    await until_true(taken)
    assert (await service.ended(call["run_id"]))["result"][0]["output"] == "late"


async def test_the_same_result_may_be_brought_again_and_no_other(service: Service, clients: Clients) -> None:
    call = await work(service, clients)
    token = await clients.leased(call)
    result = {"output": {"b": 1, "a": [2.5, None]}}
    first = await clients.bring(call, **result, lease_token=token)
    again = await clients.bring(call, output={"a": [2.5, None], "b": 1})
    assert (again.status_code, again.json()) == (first.status_code, first.json()) == (200, first.json())
    await service.ended(call["run_id"])
    assert (await clients.bring(call, **result, lease_token=token)).status_code == 200
    for other in ({"output": {"b": 1}}, {"error": {"type": "E", "message": "m"}}):
        assert refusal(await clients.bring(call, **other, lease_token=token)) == (409, "already_answered")


async def test_of_two_results_at_once_one_counts(service: Service, clients: Clients) -> None:
    call = await work(service, clients)
    answers = await asyncio.gather(*(clients.bring(call, output=n) for n in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 7]
    assert {a.json()["code"] for a in answers if a.status_code == 409} == {"already_answered"}
    (won,) = [answer.json()["output"] for answer in answers if answer.status_code == 200]
    (result,) = (await service.ended(call["run_id"]))["result"]
    assert result["output"] == won


async def test_a_request_with_a_key_is_done_once(service: Service, clients: Clients) -> None:
    call = await work(service, clients)
    keyed = Clients(service.http, {"Idempotency-Key": "once"})
    first, again = await keyed.claim(call), await keyed.claim(call)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    assert (await keyed.claim(call, lease_s=5)).status_code == 422
    token = first.json()["lease_token"]
    first, again = [await keyed.bring(call, output=1, lease_token=token) for _ in range(2)]
    assert (again.headers["idempotency-replayed"], again.json()) == ("true", first.json())
