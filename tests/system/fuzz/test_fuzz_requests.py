"""Whatever comes over a connection is answered as documented, or hung up on, and the service goes on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import event, given, note

from tests.support.clients import Clients
from tests.support.database import migrated
from tests.support.fuzzed_requests import (
    ANSWERED_WITHIN_S,
    DOCUMENT,
    Sent,
    exchanged,
    noise,
    requests,
)
from tests.support.fuzzed_runs import nothing_breaks
from tests.support.fuzzing import bounded, marks
from tests.support.polling import until_true
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = [pytest.mark.anyio, *marks]


@dataclass(frozen=True)
class Target:
    """The service and what is in it."""

    service: Service
    known: dict[str, str]
    """Path parameters of things that exist."""

    @property
    def host(self) -> str:
        """As the Host header has it."""
        return urlsplit(self.service.url).netloc

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.host.rpartition(":")[2])

    async def is_ready(self) -> bool:
        """Whether it says so; on a busy machine its database may not have answered in time."""
        return (await self.service.http.get("/readyz")).status_code == 200


async def nowhere_else(host: str, port: int) -> list[str]:
    """Finds no address but this machine's."""
    if host in ("127.0.0.1", "localhost"):
        return ["127.0.0.1"]
    raise OSError("no such name in the tests")


@pytest.fixture(scope="module")
async def target(postgres: PostgresServer) -> AsyncIterator[Target]:
    async with migrated(postgres) as url, running(url, resolve=nowhere_else) as service:
        yield Target(service, await things(service))


async def things(service: Service) -> dict[str, str]:
    """One of everything."""
    http = service.http
    script = [{"text": "hello"}, {"end": "stop"}]
    branch = await service.branch(chat_model=await service.scripted("m", script))
    run = await service.operate(branch)
    await Clients(http).tool("theirs")
    await Clients(http).waiting(branch, {"function": "theirs", "arguments": {}})
    endpoint = await http.post(
        "/v1/webhook-endpoints", json={"url": "http://127.0.0.1:9/", "event_types": ["ERROR"]}
    )
    assert endpoint.status_code == 201, endpoint.text
    key = {"name": "m", "kind": "token", "secret": "a-secret-of-the-tests"}
    assert (await http.post("/v1/credentials", json=key)).status_code == 201
    return {
        "branch_id": branch,
        "run_id": run["id"],
        "call_id": (await service.get("/v1/function-calls"))["data"][0]["id"],
        "project_id": (await service.get("/v1/projects"))["data"][0]["id"],
        "endpoint_id": endpoint.json()["id"],
        "delivery_id": run["id"],
        "key_id": run["id"],
        "name": "m",
        "code": "not_found",
    }


def status_of(answer: bytes) -> int:
    """Of its first line."""
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


def code_of(answer: bytes) -> str:
    """Of the problem that it is, "" for none."""
    found = re.search(rb'"code":"(\w+)"', answer)
    return found.group(1).decode() if found else ""


@bounded
@given(sent=requests)
async def test_requests_of_every_route(target: Target, sent: Sent) -> None:
    raw = sent.raw(target.host, target.known)
    note(repr(raw))
    with nothing_breaks():
        answer = await exchanged(target.port, raw)
        status = status_of(answer)
        event(f"{sent.operation.method}: {status} {code_of(answer)}")
        answers: dict[str, Any] = DOCUMENT["paths"][sent.operation.path][sent.operation.method.lower()][
            "responses"
        ]
        assert status != 500, answer
        assert status < 500 or str(status) in answers, answer
        await until_true(target.is_ready, within_s=ANSWERED_WITHIN_S)


@bounded
@given(raw=noise)
async def test_what_may_be_no_request(target: Target, raw: bytes) -> None:
    note(repr(raw))
    with nothing_breaks():
        answer = await exchanged(target.port, raw, end=True)
        status = status_of(answer) if answer else 0
        event(f"noise: {status}")
        assert status < 500
        await until_true(target.is_ready, within_s=ANSWERED_WITHIN_S)
