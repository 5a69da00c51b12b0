"""What holds of every route: nobody reaches another project, and what is answered is what was documented."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.api import openapi_document
from tests.support.clients import Clients
from tests.support.database import migrated
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

OPERATOR = "the operator's key of the tests"
DOCUMENT = openapi_document()
NOBODYS = {"/problems/{code}"}
"""Addresses that hold the same for every project."""

OWNED = [
    (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if "{" in path and path not in NOBODYS
]

BODIES: dict[str, Any] = {
    "fork_run": {"at_seq": 1},
    "append_messages": {"messages": [{"kind": "system", "content": {"text": "mine now"}}]},
    "operate": {"instruction": "go"},
    "act": {"requests": []},
    "create_key": {"name": "mine now"},
    "put_tool": {"kind": "http", "parameters": {"type": "object"}, "http": {"url": "https://tools.example"}},
    "put_credential": {"secret": "mine now, and no longer theirs"},
    "put_mcp_server": {"url": "https://mcp.example/mine-now"},
    "put_model": {"provider": "openai", "model": "mine now", "base_url": "https://models.example"},
    "change_webhook_endpoint": {"description": "mine now"},
    "decide_function_call": {"decision": "approve"},
    "bring_function_call_result": {"output": "mine now"},
    "change_branch": {"name": "mine now"},
    "change_project": {"name": "mine now"},
    "put_project_limits": {"concurrent_runs": 0},
    "put_key_limits": {"concurrent_runs": 0},
}

TABLES = (
    *("projects", "api_keys", "models", "tools", "mcp_servers", "branches", "runs", "messages"),
    *("function_calls", "webhook_endpoints", "webhook_deliveries", "approvals", "client_calls"),
    *("credentials", "attempts", "quotas"),
)

BOOKKEEPING = ["next_at", "epoch", "lease_until", "news", "delivered_seq"]
"""What a courier writes about a delivery at which it has only looked: the run that waits may get news."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two projects: what the one has, and the key of the other."""

    http: httpx.AsyncClient
    """With the other's key, which has every scope but operator."""
    owned: dict[str, str]
    """What path parameters of the first project's things are."""
    database_url: str

    async def state(self) -> dict[str, list[str]]:
        """Everything that the first project has, as text."""
        connection = await asyncpg.connect(self.database_url)
        try:
            state = {}
            for table in TABLES:
                column = "id" if table == "projects" else "project_id"
                rows = await connection.fetch(
                    f"SELECT (to_jsonb(t) - $2::text[])::text FROM {table} t WHERE {column} = $1 ORDER BY 1",
                    self.owned["project_id"],
                    BOOKKEEPING if table == "webhook_deliveries" else [],
                )
                state[table] = [row[0] for row in rows]
            return state
        finally:
            await connection.close()


@pytest.fixture(scope="module")
async def neighbours(postgres: PostgresServer) -> AsyncIterator[Neighbours]:
    settings: dict[str, Any] = {
        "allowed_hosts": ("127.0.0.1",),
        "webhook_pauses_s": (3_600,),
        "sealing_keys": ("first:" + b64encode(bytes(32)).decode(),),
    }
    async with migrated(postgres) as url, running(url, bootstrap_key=OPERATOR, **settings) as service:
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        script = [{"text": "hello"}, {"end": "stop"}]
        hook = {"url": "http://127.0.0.1:9/", "event_types": ["RUN_COMPLETED"]}
        endpoint = (await service.http.post("/v1/webhook-endpoints", json=hook)).json()["id"]
        branch = await service.branch(chat_model=await service.scripted("m", script), system="Be brief.")
        assert (await service.http.put("/v1/tools/m", json=BODIES["put_tool"])).status_code == 201
        credential = {"secret": "theirs and nobody else's"}
        assert (await service.http.put("/v1/credentials/m", json=credential)).status_code == 201
        server = {"url": "http://127.0.0.1:9/mcp"}
        assert (await service.http.put("/v1/mcp-servers/m", json=server)).status_code == 201
        run = await service.operate(branch)
        await service.act(branch, {"function": "add", "arguments": {"a": 1, "b": 2}})
        await _failed_once(service, endpoint)
        asking = await service.branch(gate={"default": "escalate"})
        clients = Clients(service.http)
        waiting = {"function": await clients.tool("door"), "arguments": {}}
        asked = await clients.waiting(asking, waiting)
        calls = await service.get("/v1/function-calls")
        path = f"/v1/function-calls/{calls['data'][0]['id']}/decision"
        assert (await service.http.post(path, json={"decision": "approve"})).status_code == 200
        await clients.next_of(asked["id"], 0)
        projects = await service.get("/v1/projects")
        home = projects["data"][0]["id"]
        limits = {"requests_per_minute": 1_000_000}
        assert (await service.http.put(f"/v1/projects/{home}/limits", json=limits)).status_code == 200
        keys = f"/v1/projects/{home}/keys"
        owned = {
            "branch_id": branch,
            "run_id": run["id"],
            "call_id": calls["data"][0]["id"],
            "project_id": home,
            "key_id": (await service.http.post(keys, json={"name": "theirs"})).json()["id"],
            "name": "m",
            "endpoint_id": endpoint,
            "delivery_id": run["id"],
        }
        other = (await service.http.post("/v1/projects", json={"name": "other"})).json()["id"]
        scopes = ["read", "run", "approve", "admin"]
        made = await service.http.post(
            f"/v1/projects/{other}/keys", json={"name": "foreign", "scopes": scopes}
        )
        headers = {"Authorization": f"Bearer {made.json()['key']}"}
        async with httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False) as http:
            yield Neighbours(http, owned, url)


async def _failed_once(service: Service, endpoint: str) -> None:
    """Wait until its deliveries have nothing more to do for an hour."""
    async with asyncio.timeout(30):
        while True:
            page = await service.get(f"/v1/webhook-endpoints/{endpoint}/deliveries")
            if page["data"] and all(delivery["failures"] for delivery in page["data"]):
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("method", "path"), OWNED, ids=lambda value: value)
async def test_what_belongs_to_another_project_does_not_exist(
    neighbours: Neighbours, method: str, path: str
) -> None:
    operation = DOCUMENT["paths"][path][method.lower()]
    body = BODIES.get(operation["operationId"])
    before = await neighbours.state()
    assert all(before[table] for table in TABLES)
    answer = await neighbours.http.request(
        method, path.format(**neighbours.owned), json=body if body or method == "GET" else {}
    )
    if method == "PUT" and path.endswith("/{name}"):
        # It is one of their own that they have made.
        assert answer.status_code == 201
        assert (await neighbours.http.delete(path.format(name="m"))).status_code == 204
    else:
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert await neighbours.state() == before


async def test_every_thing_of_a_project_is_swept() -> None:
    swept = {name for _, path in OWNED for name in path.split("/") if name.startswith("{")}
    assert swept == {
        *("{branch_id}", "{run_id}", "{call_id}", "{project_id}", "{key_id}", "{name}"),
        *("{endpoint_id}", "{delivery_id}"),
    }


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENT["paths"] if path.startswith("/v1/") and "{" not in path]
)
async def test_lists_hold_nothing_of_another_project(neighbours: Neighbours, path: str) -> None:
    if "get" not in DOCUMENT["paths"][path]:
        pytest.skip("no list")
    answer = await neighbours.http.get(path)
    if path == "/v1/projects":
        assert answer.status_code == 403
        return
    assert answer.status_code == 200
    shown = answer.text
    assert not [value for name, value in neighbours.owned.items() if name != "name" and value in shown]


async def test_a_body_cannot_name_a_branch_of_another_project(neighbours: Neighbours) -> None:
    before = await neighbours.state()
    body = {"instruction": "go", "voters": ["m", "m"], "branch_id": neighbours.owned["branch_id"]}
    answer = await neighbours.http.post("/v1/consensus", json=body)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert await neighbours.state() == before
