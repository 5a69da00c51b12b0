"""Whoever has to decide is told by webhook that a call waits, and what became of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.database import migrated
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.receiver import Receiver, Reply
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

ESCALATE = {"default": "escalate"}
TOLD = ["APPROVAL_REQUESTED", "APPROVAL_DECIDED", "RUN_COMPLETED"]


@pytest.fixture(scope="module")
async def services(postgres: PostgresServer) -> AsyncIterator[list[Service]]:
    """Two processes' worth of the service over one database."""
    settings: dict[str, Any] = {"webhook_pauses_s": (0.01,) * 5, "approval_s": 600}
    async with migrated(postgres) as url, AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running(url, **settings)) for _ in range(2)]


async def endpoint(service: Service, url: str) -> str:
    """An endpoint for approvals; its secret."""
    body = {"url": url, "callbacks": [], "event_types": TOLD}
    answer = await service.http.post("/v1/webhook-endpoints", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["secret"])


async def escalated(service: Service, **act: Any) -> dict[str, Any]:
    """A run that waits for a person."""
    branch = await service.branch(gate=ESCALATE)
    call = {"function": "add", "arguments": {"a": 1, "b": 2}}
    answer = await service.http.post(f"/v1/branches/{branch}/act", json={"requests": [call], **act})
    assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
    run: dict[str, Any] = answer.json()
    return run


def told(receiver: Receiver, path: str) -> list[dict[str, Any]]:
    """The events that were sent there, each post once."""
    posts = {post.id: post for post in receiver.at(path)}
    return [event for post in posts.values() for event in post.data["events"]]


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("decider", [0, 1], ids=["where it runs", "elsewhere"])
async def test_who_decides_is_told_what_waits_and_what_was_decided(
    services: list[Service], decision: str, decider: int
) -> None:
    async with Receiver() as receiver:
        path = f"/{decision}/{decider}"
        receiver.replies[path] = [Reply(503), Reply()]
        secret = await endpoint(services[0], receiver.url(path))
        run = await escalated(services[0])
        await until(lambda: told(receiver, path) and len(receiver.at(path)) > 1, within_s=30)
        (asked,) = told(receiver, path)
        assert (asked["type"], asked["run_id"]) == ("APPROVAL_REQUESTED", run["id"])
        assert asked["meta"]["toolName"] == "add"
        assert asked["meta"]["arguments"] == {"a": 1, "b": 2}
        assert not receiver.at(path)[-1].data["ended"]
        approvals = await services[decider].get(f"/v1/approvals?run_id={run['id']}")
        (approval,) = approvals["data"]
        assert approval["id"] == asked["meta"]["approvalId"]
        answer = await services[decider].http.post(
            f"/v1/function-calls/{approval['function_call_id']}/decision", json={"decision": decision}
        )
        assert answer.status_code == 200
        await until(lambda: receiver.at(path)[-1].data["ended"], within_s=30)
        _, decided, completed = told(receiver, path)
        assert (decided["type"], decided["meta"]["decision"]) == ("APPROVAL_DECIDED", decision)
        assert (completed["type"], completed["meta"]["status"]) == ("RUN_COMPLETED", "completed")
        for post in receiver.at(path):
            post.verify(secret)
        for made in (await services[0].get("/v1/webhook-endpoints"))["data"]:
            await services[0].http.delete(f"/v1/webhook-endpoints/{made['id']}")


async def test_that_nobody_decided_in_time_is_told_too(database_url: str) -> None:
    async with Receiver() as receiver, running(database_url, approval_s=0.3) as service:
        await endpoint(service, receiver.url("/late"))
        await escalated(service)
        await until(lambda: told(receiver, "/late")[2:], within_s=30)
        asked, decided, completed = told(receiver, "/late")
        assert [event["type"] for event in (asked, decided, completed)] == TOLD
        assert (decided["meta"]["decision"], decided["meta"]["decidedBy"]) == ("expired", None)
        assert decided["meta"]["approvalId"] == asked["meta"]["approvalId"]
