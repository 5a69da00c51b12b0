"""Every request that takes an Idempotency-Key is done once, though the answer of its commit is lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import pytest

from tests.support.api import openapi_document
from tests.support.clients import Clients
from tests.support.database import migrated
from tests.support.polling import until, until_true
from tests.support.postgres import PostgresServer
from tests.support.process import serving
from tests.support.relay import Relay
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

OPERATOR: Final = "the operator's key of the tests"
ADDRESS: Final = "http://127.0.0.1:9/"
SEALING: Final = "tests:" + "dGhlIHNlYWxpbmcga2V5IG9mIGFsbCB0aGUgdGVzdHM="

ROUTES: Final[dict[str, Any]] = {
    "/v1/branches": {"name": "once"},
    "/v1/branches/{branch}/fork": {},
    "/v1/branches/{branch}/messages": {
        "messages": [{"kind": "instruction", "content": {"instruction": "hi"}}]
    },
    "/v1/branches/{spoilt}/purge": None,
    "/v1/runs/{run}/fork": {"at_seq": 1},
    "/v1/projects": {"name": "once"},
    "/v1/projects/{project}/keys": {"name": "once"},
    "/v1/models": {"name": "once", "provider": "openai", "base_url": ADDRESS, "model": "m"},
    "/v1/tools": {"name": "once", "kind": "client", "parameters": {"type": "object"}},
    "/v1/credentials": {"name": "once", "secret": "what nobody is told again"},
    "/v1/mcp-servers": {"name": "once", "url": ADDRESS},
    "/v1/webhook-endpoints": {"url": ADDRESS, "event_types": ["RUN_FAILED"]},
    "/v1/webhook-endpoints/{endpoint}/rotate-secret": None,
    "/v1/webhook-endpoints/{endpoint}/deliveries/{run}/redrive": None,
    "/v1/function-calls/{questioned}/decision": {"decision": "approve"},
    "/v1/function-calls/{claimed}/claim": {},
    "/v1/function-calls/{brought}/result": {"output": "done"},
    "/v1/branches/{branch}/operate": {"instruction": "hi"},
    "/v1/branches/{branch}/act": {"requests": [{"function": "echo", "arguments": {"value": 1}}]},
    "/v1/consensus": {"instruction": "hi", "voters": ["m", "m"]},
}
"""What is asked where; the names stand for what `furnished` makes."""
RUNS: Final = ("operate", "act", "consensus")

COUNTED: Final = (
    *("projects", "api_keys", "models", "tools", "mcp_servers", "branches", "runs", "webhook_endpoints"),
    *("approvals", "client_calls", "credentials", "audit_log", "idempotency_keys"),
)


def without_names(path: str) -> str:
    """A path whose parameters have no names."""
    return re.sub(r"{\w+}", "{}", path)


def test_every_route_that_takes_a_key_is_played() -> None:
    takes = {
        without_names(path)
        for path, methods in openapi_document()["paths"].items()
        for operation in methods.values()
        if any(field["name"] == "Idempotency-Key" for field in operation.get("parameters", ()))
    }
    assert takes == {without_names(path) for path in ROUTES}


SAID: Final = "SELECT count(*) FROM messages WHERE branch_id = $1 AND kind = 'system'"


@dataclass(frozen=True, slots=True)
class Place:
    """A database with all that the routes are about, and a process that does everything."""

    url: str
    service: Service
    owned: dict[str, str]
    database: asyncpg.Connection[Any]
    turn: asyncio.Lock

    def of(self, route: str) -> str:
        """Its path."""
        return route.format(**self.owned)

    def kept(self, key: str) -> Callable[[], Awaitable[Any]]:
        """Asks whether what was asked under a key is committed."""
        query = "SELECT run_id IS NOT NULL OR status IS NOT NULL FROM idempotency_keys WHERE key = $1"

        async def is_kept() -> Any:
            async with self.turn:
                return await self.database.fetchval(query, key)

        return is_kept

    async def counts(self) -> dict[str, int]:
        """How much of everything there is."""
        found = {table: await self.database.fetchval(f"SELECT count(*) FROM {table}") for table in COUNTED}
        said = await self.database.fetchval(SAID, self.owned["branch"])
        return {**found, "said": said}


@pytest.fixture
async def place(postgres: PostgresServer) -> AsyncIterator[Place]:
    settings: dict[str, Any] = {"allowed_hosts": ("127.0.0.1",), "webhook_pauses_s": (3_600,)}
    async with migrated(postgres) as url, running(url, bootstrap_key=OPERATOR, **settings) as service:
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        database = await asyncpg.connect(url)
        yield Place(url, service, await furnished(service), database, asyncio.Lock())
        await database.close()


async def furnished(service: Service) -> dict[str, str]:
    """Something of each kind that routes are about."""
    hook = {"url": ADDRESS, "event_types": ["RUN_COMPLETED"]}
    endpoint = (await service.http.post("/v1/webhook-endpoints", json=hook)).json()["id"]
    branch = await service.branch(
        chat_model=await service.scripted("m", [{"text": "hello"}, {"end": "stop"}])
    )
    run = await service.operate(branch)

    async def failed() -> bool:
        deliveries = (await service.get(f"/v1/webhook-endpoints/{endpoint}/deliveries"))["data"]
        return bool(deliveries and deliveries[0]["failures"])

    await until_true(failed)
    clients = Clients(service.http)
    door = {"function": await clients.tool("door"), "arguments": {}}
    calls = {
        name: (await clients.waiting(await service.branch(), door))["function_calls"][0]
        for name in ("claimed", "brought")
    }
    echo = {"function": "echo", "arguments": {"value": 1}}
    asking = await clients.waiting(await service.branch(gate={"default": "escalate"}), echo)
    home = (await service.get("/v1/projects"))["data"][0]["id"]
    spoilt = await service.branch()
    others = {"questioned": asking["function_calls"][0], "spoilt": spoilt, "project": home}
    return {"endpoint": endpoint, "branch": branch, "run": run["id"], **calls, **others}


def key_of(route: str) -> str:
    """The key of the request there."""
    return f"once:{route}"


async def asked(http: httpx.AsyncClient, place: Place, route: str) -> httpx.Response:
    """The answer to a request."""
    headers = {"Idempotency-Key": key_of(route), "Authorization": f"Bearer {OPERATOR}"}
    return await http.post(place.of(route), json=ROUTES[route], headers=headers)


async def replayed(place: Place, route: str, counts: dict[str, int]) -> httpx.Response:
    """The answer of another process, which does nothing."""
    again = await asked(place.service.http, place, route)
    assert again.status_code in (200, 201), (route, again.text)
    assert again.headers["Idempotency-Replayed"] == "true", route
    assert await place.counts() == counts, route
    return again


async def test_the_connection_breaks_at_the_answer_of_the_commit(place: Place) -> None:
    """The client is told to ask again, if anything, and gets what it would have got."""
    settings: dict[str, Any] = {"bootstrap_key": OPERATOR, "allowed_hosts": ("127.0.0.1",)}
    async with Relay(place.url) as relay, running(relay.url, **settings) as service:
        for route in ROUTES:
            lost = relay.lose(key_of(route).encode(), place.kept(key_of(route)), "reset")
            first = await asked(service.http, place, route)
            assert lost.is_set(), route
            if route.endswith(RUNS):
                assert (first.status_code, first.json()["status"]) == (200, "completed"), (route, first.text)
            else:
                assert (first.status_code, first.json()["retryable"]) == (503, True), (route, first.text)
                assert first.headers["Retry-After"] == "1"
            counts = await place.counts()
            again = await replayed(place, route, counts)
            if route.endswith(RUNS):
                assert again.json() == first.json()
            assert (await asked(service.http, place, route)).json() == again.json()


@pytest.mark.parametrize("half", [0, 1])
async def test_the_process_dies_at_the_answer_of_the_commit(place: Place, half: int, tmp_path: Path) -> None:
    """Many requests are committed unheard when it dies, each on a connection of its own."""
    routes = [route for route in ROUTES if not route.endswith(RUNS)][half::2]
    if half:
        routes.append("/v1/consensus")  # the other runs are played where their calls are counted
    environment = {
        "BRANCHLINE_BOOTSTRAP_KEY": OPERATOR,
        "BRANCHLINE_SECRET_KEY": "a pepper for tests",
        "BRANCHLINE_SEALING_KEYS": SEALING,
        "BRANCHLINE_ALLOWED_HOSTS": "127.0.0.1",
    }
    async with Relay(place.url) as relay, serving(relay.url, tmp_path, **environment) as process:
        unanswered = await unheard(relay, process.http, place, routes)
        process.process.kill()
        await process.process.wait()
        await asyncio.wait(unanswered)
        assert all(isinstance(task.exception(), httpx.TransportError) for task in unanswered)
    counts = await place.counts()
    for route in routes:
        await replayed(place, route, counts)


async def unheard(
    relay: Relay, http: httpx.AsyncClient, place: Place, routes: Sequence[str]
) -> list[asyncio.Task[httpx.Response]]:
    """The requests, each of them committed and none of them answered."""
    tasks = []
    for route in routes:
        lost = relay.lose(key_of(route).encode(), place.kept(key_of(route)), "silence")
        tasks.append(asyncio.create_task(asked(http, place, route)))
        await until(lost.is_set, within_s=20)
    assert not any(task.done() for task in tasks)
    return tasks
