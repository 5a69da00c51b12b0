"""What is exported and imported into an empty database shows the same history, by every route."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest

from app.adapters.db.engine import make_engine
from app.adapters.db.retention import sweep
from tests.support.clients import Clients, refusal
from tests.support.database import migrated
from tests.support.model_server import Attempt, ModelServer
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running
from tests.support.transfer import all_of, exported, file_of, imported, sent, shown

pytestmark = pytest.mark.anyio

ESCALATE = {"rules": [{"when": "function == 'note'", "effect": "escalate", "reason": "look at it"}]}
WORDS = ("hello ", "wörld ", '{"a": 1}', "🌊 ", "\\u0041\n", "1e5 ", "12345678901234567890 ", "")


@asynccontextmanager
async def two(postgres: PostgresServer) -> AsyncIterator[tuple[Service, Service, str]]:
    """A service with a history to come, one that is empty, and the URL of the first one's database."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            url = await stack.enter_async_context(migrated(postgres))
            made.append((await stack.enter_async_context(running(url)), url))
        yield made[0][0], made[1][0], made[0][1]


async def home(service: Service) -> str:
    return f"/v1/projects/{(await service.get('/v1/projects'))['data'][0]['id']}"


async def spoken(service: Service, random: Random) -> str:
    """A branch on which some of everything has happened, as chance will have it."""
    settings: dict[str, Any] = {
        "name": random.choice(("a", None)),
        "system": random.choice(("Be brief.", None)),
        "metadata": {"n": 1234567890123456789, "x": 1.5, "nested": {"ü": [None, True]}},
        "gate": ESCALATE,
        "hooks": None,
        "lifecycle": {"retry": {"attempts": 2, "base_delay_ms": 1}, "fallbacks": ["other"]},
    }
    branch = await service.branch(chat_model="m", **settings)
    for _ in range(random.randint(2, 5)):
        await random.choice(EVENTS)(service, random, branch)
    return branch


def texts(random: Random) -> list[dict[str, Any]]:
    return [{"text": random.choice(WORDS)} for _ in range(random.randint(1, 400))]


async def _said(service: Service, random: Random, branch: str) -> None:
    said = {"kind": "instruction", "content": {"instruction": {"any": [1, 2.0, "x"]}, "context": None}}
    answer = await service.http.post(f"/v1/branches/{branch}/messages", json={"messages": [said]})
    assert answer.status_code == 201, answer.text


async def _operated(service: Service, random: Random, branch: str) -> None:
    script = [*texts(random), {"text": "end"}, {"end": "stop"}]
    price = {"input": "0.123456789", "output": 7}
    streams = {"streams": [{"attempts": [script]}]}
    await service.model("m", provider="scripted", options=streams, price=price)
    await service.operate(branch, lifecycle={"context": {"request_id": "r-1"}})


async def _called(service: Service, random: Random, branch: str) -> None:
    call = {"index": 0, "id": "c1", "name": "add", "arguments": '{"a": 19, "b": 23}'}
    await service.scripted("m", [{"text": "Let me add."}, {"tool_call": call}, {"end": "tool_calls"}])
    run = await service.operate(branch, actions=True)
    assert run["function_calls"]


async def _retried(service: Service, random: Random, branch: str) -> None:
    broken: list[dict[str, Any]] = [{"text": "half of "}, {"error": {"kind": "network"}}]
    await service.scripted("m", broken, broken, broken, broken)
    await service.scripted("other", [{"text": '{"answer": 5}'}, {"end": "stop"}])
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}}
    await service.operate(branch, response_format=schema)


async def _acted(service: Service, random: Random, branch: str) -> None:
    calls: list[dict[str, Any]] = [
        {"function": "add", "arguments": {"a": 1, "b": 12345678901234567890}},
        {"function": "refuse", "arguments": {"why": "because"}},
        {"function": "echo", "arguments": {"value": None}},
        {"function": "nosuch", "arguments": [1, {"x": "y"}]},
    ]
    await service.act(branch, *random.sample(calls, random.randint(1, 4)))


async def _asked(service: Service, random: Random, branch: str) -> None:
    body = {"requests": [{"function": "note", "arguments": {"text": "a note"}}]}
    answer = await service.http.post(f"/v1/branches/{branch}/act", json=body)
    run = answer.json()
    (approval,) = (await service.get(f"/v1/approvals?run_id={run['id']}"))["data"]
    decision = random.choice(
        ({"decision": "approve"}, {"decision": "deny"}, {"decision": "edit", "arguments": {"text": "b"}})
    )
    path = f"/v1/function-calls/{approval['function_call_id']}/decision"
    assert (await service.http.post(path, json=decision)).status_code == 200
    await service.ended(run["id"])


async def _carried_out(service: Service, random: Random, branch: str) -> None:
    clients = Clients(service.http)
    waiting = await clients.waiting(branch, {"function": await clients.tool("door"), "arguments": {"n": 1}})
    await clients.brought(await clients.next_of(waiting["id"], 0), random.choice((None, "open", {"at": 1.0})))
    await service.ended(waiting["id"])


async def _forked(service: Service, random: Random, branch: str) -> None:
    answer = await service.http.post(f"/v1/branches/{branch}/fork", json={"name": "another try"})
    assert answer.status_code == 201, answer.text
    if random.random() < 0.5:
        await _operated(service, random, answer.json()["id"])


EVENTS = (_said, _operated, _called, _retried, _acted, _asked, _carried_out, _forked)


@pytest.mark.parametrize("seed", range(4))
async def test_a_project_comes_back_as_it_was(postgres: PostgresServer, seed: int) -> None:
    random = Random(seed)
    async with two(postgres) as (here, there, _):
        await here.scripted("other", [{"text": "other"}, {"end": "stop"}])
        await here.scripted("m", [{"text": "fine"}, {"end": "stop"}])
        for _ in range(3):
            await spoken(here, random)
        await here.scripted("m", [{"text": "yes"}, {"end": "stop"}])
        await here.consensus(["m", "m"])
        before = await shown(here)
        lines = await exported(here, await home(here))
        done = await imported(there, lines)
        assert done["branches"] == len(before["branches"])
        assert (done["runs"], done["skipped"]) == (len(before["runs"]), [])
        assert done["events"] == sum(run["last_seq"] for run in before["runs"])
        after = await shown(there)
        assert after == before
        again = await exported(there, await home(there))
        assert again[1:] == lines[1:]


async def test_what_was_imported_goes_on(postgres: PostgresServer) -> None:
    async with two(postgres) as (here, there, _):
        for service in (here, there):
            await service.scripted("other", [{"text": "other"}, {"end": "stop"}])
            await service.scripted("m", [{"text": "fine"}, {"end": "stop"}])
        branch = await spoken(here, Random(7))
        await imported(there, await exported(here, f"/v1/branches/{branch}"))
        for service in (here, there):
            await service.scripted("m", [{"text": "fine"}, {"end": "stop"}])
        runs = [await service.operate(branch, instruction="and then?") for service in (here, there)]
        assert [run["status"] for run in runs] == ["completed"] * 2
        said = [await service.messages(branch) for service in (here, there)]
        assert [m["content"] for m in said[0]] == [m["content"] for m in said[1]]


async def test_what_is_there_already_is_left_alone(postgres: PostgresServer) -> None:
    async with two(postgres) as (here, there, _):
        await here.scripted("m", [{"text": "fine"}, {"end": "stop"}])
        branches = [await here.branch(chat_model="m") for _ in range(2)]
        for branch in branches:
            await here.operate(branch)
        await here.consensus(["m", "m"])
        first = await exported(here, f"/v1/branches/{branches[0]}")
        await imported(there, first)
        whole = await exported(here, await home(here))
        done = await imported(there, whole)
        assert (done["branches"], done["runs"], done["skipped"]) == (1, 2, [branches[0]])
        before = await shown(there)
        again = await imported(there, whole)
        assert (again["branches"], again["runs"], len(again["skipped"])) == (0, 0, 3)
        assert await shown(there) == before == await shown(here)


async def test_a_section_is_stored_whole_or_not_at_all(postgres: PostgresServer) -> None:
    async with two(postgres) as (here, there, _):
        await here.scripted("m", [{"text": "fine"}, {"end": "stop"}])
        for _ in range(2):
            branch = await here.branch(chat_model="m")
            await here.operate(branch)
        lines = await exported(here, await home(here))
        body = file_of(lines)
        ends = [index for index, line in enumerate(lines) if line["object"] == "end"]
        for cut in range(1, len(lines)):
            answer = await sent(there, file_of(lines[:cut]))
            assert refusal(answer) == (422, "import_refused")
            assert answer.json()["line"] == cut + 1
            whole = sum(end < cut for end in ends)
            assert len(await all_of(there, "/v1/branches")) == whole
            assert len(await all_of(there, "/v1/runs")) == whole
        torn = await sent(there, body[: len(body) // 2])
        assert refusal(torn) == (422, "import_refused")
        assert len((await imported(there, lines))["skipped"]) == 2
        assert await shown(there) == await shown(here)


async def test_runs_whose_log_is_gone_are_carried_without_it(postgres: PostgresServer) -> None:
    async with two(postgres) as (here, there, url):
        await here.scripted("m", [{"text": "fine"}, {"end": "stop"}])
        run = await here.operate(await here.branch(chat_model="m"))
        engine = make_engine(url)
        await sweep(engine, now_ms=int(time.time() * 1000) + 40 * 24 * 3600 * 1000, days=30)
        await engine.dispose()
        done = await imported(there, await exported(here, await home(here)))
        assert (done["runs"], done["events"]) == (1, 0)
        assert await shown(there) == await shown(here)
        assert (await there.http.get(f"/v1/runs/{run['id']}/events")).status_code == 410


async def test_what_goes_on_is_not_exported(postgres: PostgresServer) -> None:
    async with two(postgres) as (here, there, _):
        clients = Clients(here.http)
        busy, idle = await here.branch(), await here.branch(name="idle")
        await clients.waiting(busy, {"function": await clients.tool("door"), "arguments": {}})
        assert refusal(await here.http.get(f"/v1/branches/{busy}/export")) == (409, "branch_busy")
        lines = await exported(here, await home(here))
        assert {"object": "omitted", "id": busy, "reason": "busy"} in lines
        assert (await imported(there, lines))["branches"] == 1
        assert [branch["id"] for branch in await all_of(there, "/v1/branches")] == [idle]


async def test_who_carried_what_is_in_the_audit_log(postgres: PostgresServer) -> None:
    async with two(postgres) as (here, there, _):
        branch = await here.branch(name="mine")
        project = await home(here)
        await here.http.patch(f"/v1/branches/{branch}", json={"legal_hold": True})
        await here.http.patch(project, json={"retention_days": 7, "legal_hold": True})
        await exported(here, f"/v1/branches/{branch}")
        lines = await exported(here, project)
        await imported(there, lines)
        noted = (await here.get("/v1/audit-log?order=asc"))["data"]
        assert [(entry["action"], entry["subject"]) for entry in noted] == [
            ("branch.govern", f"branch:{branch}"),
            ("project.update", f"project:{project.rpartition('/')[2]}"),
            ("branch.export", f"branch:{branch}"),
            ("project.export", f"project:{project.rpartition('/')[2]}"),
        ]
        assert noted[0]["detail"]["changed"] == ["legal_hold"]
        assert noted[1]["detail"]["changed"] == ["legal_hold", "retention_days"]
        (took,) = (await there.get("/v1/audit-log"))["data"]
        assert (took["action"], took["subject"]) == ("branch.import", f"branch:{branch}")
        assert (await there.get(f"/v1/branches/{branch}"))["legal_hold"] is True


@pytest.mark.parametrize("how", ["purge", "delete"])
async def test_what_was_removed_is_brought_back_and_counted_once(postgres: PostgresServer, how: str) -> None:
    async with migrated(postgres) as url, running(url) as service:
        await service.scripted("other", [{"text": "other"}, {"end": "stop"}])
        await service.scripted("m", [{"text": "fine"}, {"end": "stop"}])
        branch = await service.branch(chat_model="m", lifecycle={"fallbacks": ["other"]})
        await _retried(service, Random(1), branch)
        before = await shown(service)
        lines = await exported(service, f"/v1/branches/{branch}")
        if how == "purge":
            assert (await service.http.post(f"/v1/branches/{branch}/purge")).status_code == 200
        assert (await service.http.delete(f"/v1/branches/{branch}")).status_code == 204
        assert (await imported(service, lines))["runs"] == 1
        assert await shown(service) == before


async def test_what_was_edited_before_it_was_brought_back_is_what_models_are_shown(
    postgres: PostgresServer,
) -> None:
    """Although the process has read the conversation as it was, and keeps what it has read."""
    plain = [b'data: {"choices": [{"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"}]}\n\n']
    async with ModelServer({"shown": [Attempt(chunks=[*plain, b"data: [DONE]\n\n"])]}) as server:
        async with migrated(postgres) as url, running(url) as service:
            await service.model("shown", provider="openai", base_url=server.base_url)
            branch = await service.branch(chat_model="shown")
            for said in ("the word is mellon", "and?"):
                await service.operate(branch, instruction=said)
            lines = await exported(service, f"/v1/branches/{branch}")
            assert (await service.http.delete(f"/v1/branches/{branch}")).status_code == 204
            first = next(line for line in lines if line["object"] == "message")
            first["content"]["instruction"] = "the word is gone"
            await imported(service, lines)
            await service.operate(branch, instruction="what is it?")
        shown_last = [message["content"] for message in server.requests[-1].body["messages"]]
    assert shown_last == ["the word is gone", "fine", "and?", "fine", "what is it?"]
