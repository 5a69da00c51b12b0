"""A run is committed, and the database's answer to that is lost: whoever asks again, it is done once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support import chat_wire
from tests.support.http_tools import gives
from tests.support.model_server import ModelServer
from tests.support.polling import until, until_true
from tests.support.process import serving
from tests.support.relay import Relay
from tests.support.service import running

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
KINDS = ("operate", "idempotent", "careful")
"""A model is asked, and tools are called: one that may be called again, and one that may not."""
CALLS_AFTER_DEATH = {"operate": [], "idempotent": ["aborted", "completed"], "careful": ["aborted"]}


@asynccontextmanager
async def committed(database_url: str) -> AsyncIterator[Callable[[str], Callable[[], Awaitable[Any]]]]:
    """Asks, beside the service, for the run that a key made: its row is there as soon as it is committed."""
    connection = await asyncpg.connect(database_url)
    turn = asyncio.Lock()

    def of(key: str) -> Callable[[], Awaitable[Any]]:
        async def run() -> Any:
            async with turn:
                return await connection.fetchval(
                    "SELECT r.id FROM idempotency_keys k JOIN runs r ON r.id = k.run_id WHERE k.key = $1", key
                )

        return run

    yield of
    await connection.close()


async def furnish(http: httpx.AsyncClient, server: ModelServer) -> None:
    """A model, and two tools, that count what they are asked."""
    server.scripts["m"] = [chat_wire.attempt([{"text": "Hello"}, {"end": "stop"}])]
    model = {"provider": "openai", "base_url": server.base_url, "model": "m"}
    assert (await http.put("/v1/models/m", json=model)).status_code == 201
    for name in ("idempotent", "careful"):
        server.scripts[name] = [gives(b'{"n": 1}')]
        url = f"http://127.0.0.1:{server.port}/models/{name}:call"
        tool = {"kind": "http", "parameters": {"type": "object"}, "http": {"url": url}}
        answer = await http.put(f"/v1/tools/{name}", json=tool | {"idempotent": name == "idempotent"})
        assert answer.status_code == 201


async def asked(http: httpx.AsyncClient, kind: str) -> tuple[str, Json]:
    """Where to ask for what, on a branch of its own."""
    made = await http.post("/v1/branches", json={"chat_model": "m"})
    path = f"/v1/branches/{made.json()['id']}"
    if kind == "operate":
        return f"{path}/operate", {"instruction": "hi"}
    return f"{path}/act", {"requests": [{"function": kind, "arguments": {}}]}


def count(server: ModelServer, kind: str) -> int:
    """How often the model, or the tool, was asked."""
    return sum(request.model == ("m" if kind == "operate" else kind) for request in server.requests)


async def test_a_process_dies_between_the_commit_and_the_answer(database_url: str, tmp_path: Path) -> None:
    """Nobody knows of the run but the database; who gets the request again finds it, and somebody does it."""
    async with ModelServer() as server, committed(database_url) as of, AsyncExitStack() as stack:
        relays = [await stack.enter_async_context(Relay(database_url)) for _ in KINDS]
        # All die before any lease is over: one that lived would take up what another has begun.
        starting = [
            serving(url, tmp_path / name, BRANCHLINE_LEASE_MS="3000")
            for name, url in zip((*KINDS, "second"), (*(r.url for r in relays), database_url), strict=True)
        ]
        *firsts, second = await asyncio.gather(*map(stack.enter_async_context, starting))
        await furnish(second.http, server)
        wanted = {kind: await asked(second.http, kind) for kind in KINDS}
        unanswered = []
        for kind, relay, first in zip(KINDS, relays, firsts, strict=True):
            lost = relay.lose(kind.encode(), of(kind), "standstill")
            path, body = wanted[kind]
            asking = first.http.post(path, json=body, headers={"Idempotency-Key": kind})
            unanswered.append(asyncio.create_task(asking))
            await until(lost.is_set, within_s=30)
            first.process.kill()
            await first.process.wait()
        await asyncio.wait(unanswered)
        assert all(isinstance(task.exception(), httpx.TransportError) for task in unanswered)
        for kind, (path, body) in wanted.items():
            headers = {"Idempotency-Key": kind, "Prefer": "wait=50"}
            again = await second.http.post(path, json=body, headers=headers)
            assert again.headers["Idempotency-Replayed"] == "true"
            run = again.json()
            assert (again.status_code, run["id"], run["status"]) == (200, str(await of(kind)()), "completed")
            calls = (await second.http.get(f"/v1/function-calls?run_id={run['id']}&order=asc")).json()
            assert [call["status"] for call in calls["data"]] == CALLS_AFTER_DEATH[kind]
            # Nobody can tell that the first process had not yet called it: it may not be called again.
            assert count(server, kind) == (kind != "careful")


@pytest.mark.parametrize("role", ["all", "api"])
async def test_a_connection_breaks_between_the_commit_and_the_answer(database_url: str, role: str) -> None:
    """The process lives: it looks what became of what it said, and does it once, whoever asks how often."""
    async with (
        ModelServer() as server,
        committed(database_url) as of,
        Relay(database_url) as relay,
        running(relay.url, role=role) as service,
        running(database_url) as other,
    ):
        await furnish(service.http, server)
        for kind in KINDS:
            path, body = await asked(service.http, kind)
            headers = {"Idempotency-Key": kind, "Prefer": "wait=50"}
            lost = relay.lose(kind.encode(), of(kind), "reset")
            first = await service.http.post(path, json=body, headers=headers)
            assert lost.is_set()
            assert (first.status_code, first.json()["status"]) == (200, "completed"), first.text
            for asking in (service, other):
                again = await asking.http.post(path, json=body, headers=headers)
                assert again.headers["Idempotency-Replayed"] == "true"
                assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
            events = await other.events(first.json()["id"])
            assert "RUN_RECOVERED" not in {event["type"] for event in events}
            assert count(server, kind) == 1


async def test_a_connection_breaks_between_the_commit_of_many_and_the_answer(database_url: str) -> None:
    """Runs without a key are accepted together; a client that is told to ask again would have them twice."""
    connection = await asyncpg.connect(database_url)

    async def there() -> Any:
        return await connection.fetchval("SELECT true FROM runs LIMIT 1")

    async with ModelServer() as server, Relay(database_url) as relay, running(relay.url) as service:
        await furnish(service.http, server)
        wanted = [await asked(service.http, "operate") for _ in range(6)]
        lost = relay.lose(b'"instruction":"hi"', there, "reset")
        answers = await asyncio.gather(*(service.http.post(path, json=body) for path, body in wanted))
        assert lost.is_set()
        assert {(answer.status_code, answer.json()["result"]) for answer in answers} == {(200, "Hello")}
        assert await connection.fetchval("SELECT count(*) FROM runs") == count(server, "operate") == 6
    await connection.close()


async def test_a_run_that_queued_unheard_is_begun_before_anybody_looks(database_url: str) -> None:
    """It was handed over to the very process that accepted it, which may not begin it a second time."""
    async with (
        ModelServer() as server,
        committed(database_url) as of,
        Relay(database_url) as relay,
        running(relay.url) as service,
    ):
        await furnish(service.http, server)
        path, body = await asked(service.http, "idempotent")
        talk = await service.scripted("talk", [{"text": "w"}, {"wait_ms": 60_000}, {"end": "stop"}])
        active = await service.started(path.split("/")[3], chat_model=talk)
        server.scripts["idempotent"] = [
            gives(b'{"n": 1}', open_wait_s=3.0)
        ]  # it goes on when it is looked for
        queued: list[Json] = []

        async def handed_over() -> bool:
            if (run_id := await of("unheard")()) is None:
                return False
            if not queued:
                queued.append(await service.get(f"/v1/runs/{run_id}"))
                assert (await service.http.post(f"/v1/runs/{active['id']}/cancel")).status_code == 200

            await until(lambda: count(server, "idempotent") == 1)
            return True

        lost = relay.lose(b"unheard", handed_over, "reset")
        headers = {"Idempotency-Key": "unheard", "Prefer": "wait=50"}
        answer = await service.http.post(path, json=body, headers=headers)
        assert lost.is_set()
        assert queued[0]["status"] == "queued"
        assert (answer.status_code, answer.json()["status"]) == (200, "completed"), answer.text
        assert count(server, "idempotent") == 1
        events = await service.events(answer.json()["id"])
        assert [event["type"] for event in events[:2]] == ["RUN_QUEUED", "RUN_STARTED"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_nobody_can_look_what_became_of_a_commit(database_url: str) -> None:
    """The database is away then: the client is told to come back, and what it asked for is done once."""
    async with (
        ModelServer() as server,
        committed(database_url) as of,
        Relay(database_url) as relay,
        running(relay.url, lease_ms=2_000) as service,
    ):
        await furnish(service.http, server)
        kind = "idempotent"
        path, body = await asked(service.http, kind)
        headers = {"Idempotency-Key": kind, "Prefer": "wait=50"}
        lost = relay.lose(kind.encode(), of(kind), "cut")
        first = await service.http.post(path, json=body, headers=headers)
        assert lost.is_set()
        assert (first.status_code, first.headers["Retry-After"]) == (503, "1")
        relay.release()

        answers: list[httpx.Response] = []

        async def served() -> bool:
            answers.append(await service.http.post(path, json=body, headers=headers))
            return answers[-1].status_code != 503

        await until_true(served, within_s=60)
        answer = answers[-1]
        assert answer.headers["Idempotency-Replayed"] == "true"
        run = answer.json()
        assert (answer.status_code, run["id"], run["status"]) == (200, str(await of(kind)()), "completed")
        assert count(server, kind) == 1
