"""A purge leaves nothing of what happened on a branch, and its settings as they were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from app.adapters.db.engine import make_engine
from app.adapters.db.retention import sweep
from tests.support.ambient import NOW_MS
from tests.support.clients import Clients, refusal
from tests.support.service import Service, running
from tests.support.transfer import exported, file_of, imported, sent

pytestmark = pytest.mark.anyio

SCRIPT = [{"text": "the secret word is mellon"}, {"end": "stop"}]
WORD = "mellon"

WHEREVER = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY 1"""


@pytest.fixture
async def service(database_url: str) -> AsyncIterator[Service]:
    """A service on a database of its own."""
    async with running(database_url) as made:
        yield made


async def holding(database_url: str, word: str) -> list[str]:
    """The tables in which a word stands, in whatever column."""
    connection = await asyncpg.connect(database_url)
    try:
        tables = [row[0] for row in await connection.fetch(WHEREVER)]
        return [
            table
            for table in tables
            if await connection.fetchval(
                f"SELECT true FROM {table} t WHERE t::text LIKE $1 LIMIT 1", f"%{word}%"
            )
        ]
    finally:
        await connection.close()


async def spoken(service: Service) -> tuple[str, list[dict[str, Any]]]:
    """A branch on which the word was said in every way, and its runs."""
    branch = await service.branch(chat_model="m", system="Be brief.", gate={"default": "allow"})
    said = {"messages": [{"kind": "instruction", "content": {"instruction": WORD}}]}
    path = f"/v1/branches/{branch}/messages"
    answer = await service.http.post(path, json=said, headers={"Idempotency-Key": branch})
    assert answer.status_code == 201, answer.text
    runs = [await service.operate(branch, instruction=f"say {WORD}")]
    runs.append(await service.act(branch, {"function": "echo", "arguments": {"text": WORD}}))
    return branch, runs


async def test_a_purge_removes_all_that_was_said(service: Service, database_url: str) -> None:
    await service.scripted("m", [{"text": "fine"}, {"end": "stop"}])
    branch, runs = await spoken(service)
    assert {"messages", "runs", "function_calls", "idempotency_keys"} <= set(
        await holding(database_url, WORD)
    )
    before = await service.get(f"/v1/branches/{branch}")
    other = await service.branch(chat_model="m")
    kept = await service.operate(other)
    answer = await service.http.post(f"/v1/branches/{branch}/purge")
    assert answer.status_code == 200, answer.text
    after = answer.json()
    assert after == await service.get(f"/v1/branches/{branch}")
    changing = ("version", "updated_at")
    assert {k: v for k, v in after.items() if k not in changing} == {
        k: v for k, v in before.items() if k not in changing
    }
    assert after["version"] > before["version"]
    assert await holding(database_url, WORD) == []
    assert [m["kind"] for m in await service.messages(branch)] == ["system"]
    assert (await service.get(f"/v1/branches/{branch}/runs"))["data"] == []
    for run in runs:
        assert refusal(await service.http.get(f"/v1/runs/{run['id']}")) == (404, "not_found")
        assert refusal(await service.http.get(f"/v1/runs/{run['id']}/events")) == (404, "not_found")
    assert len(await service.events(kept["id"])) == kept["last_seq"]
    (audit,) = await _audit(database_url, "branch.purge")
    assert audit["subject"] == f"branch:{branch}"
    again = await service.operate(branch, instruction="and now?")
    assert [m["kind"] for m in await service.messages(branch)] == [
        "system",
        "instruction",
        "assistant_response",
    ]
    assert again["status"] == "completed"


@pytest.mark.parametrize("how", ["purge", "delete"])
async def test_answers_that_were_kept_for_repeats_go_too(
    service: Service, database_url: str, how: str
) -> None:
    """Those about the branch and about its calls, in whatever form their addresses named them."""
    clients = Clients(service.http)
    branch, other = await service.branch(), await service.branch()
    said = {"messages": [{"kind": "instruction", "content": {"instruction": WORD}}]}
    for path in (branch.upper(), branch.replace("-", ""), f"urn:uuid:{branch}"):
        answer = await service.http.post(
            f"/v1/branches/{path}/messages", json=said, headers={"Idempotency-Key": "once"}
        )
        assert answer.status_code == 201, answer.text
    door = await clients.tool("door")
    for place in (branch, other):
        waiting = await clients.waiting(place, {"function": door, "arguments": {"word": WORD}})
        (call,) = (await service.get(f"/v1/function-calls?run_id={waiting['id']}"))["data"]
        answer = await service.http.post(
            f"/v1/function-calls/{call['id']}/claim", headers={"Idempotency-Key": "once"}
        )
        assert answer.status_code == 200, answer.text
        await clients.brought(call, WORD, lease_token=answer.json()["lease_token"])
        await service.ended(waiting["id"])
    kept = await _kept(database_url)
    if how == "purge":
        answer = await service.http.post(f"/v1/branches/{branch}/purge")
    else:
        answer = await service.http.delete(f"/v1/branches/{branch}")
    assert answer.status_code in (200, 204), answer.text
    assert len(await _kept(database_url)) == 1 < len(kept)


async def _kept(database_url: str) -> list[str]:
    """Of the answers that are kept, those that hold the word."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT scope FROM idempotency_keys WHERE body::text LIKE $1", f"%{WORD}%"
        )
        return [row["scope"] for row in rows]
    finally:
        await connection.close()


async def _audit(database_url: str, action: str) -> list[Any]:
    connection = await asyncpg.connect(database_url)
    try:
        return list(await connection.fetch("SELECT * FROM audit_log WHERE action = $1", action))
    finally:
        await connection.close()


async def test_logs_that_a_lost_process_left_go_with_the_next_sweep(
    service: Service, database_url: str
) -> None:
    await service.scripted("m", SCRIPT)
    run = await service.operate(await service.branch(chat_model="m"))
    connection = await asyncpg.connect(database_url)
    await connection.execute("INSERT INTO purged_logs SELECT id, project_id FROM runs")
    await connection.execute("DELETE FROM runs")
    await connection.close()
    assert "purged_logs" in await holding(database_url, run["id"])
    engine = make_engine(database_url)
    assert (await sweep(engine, now_ms=NOW_MS, days=None)).purged == 1
    assert (await sweep(engine, now_ms=NOW_MS, days=None)).purged == 0
    await engine.dispose()
    assert not [
        t for t in await holding(database_url, run["id"]) if t.startswith(("events", "token", "purged"))
    ]


async def test_a_run_is_not_brought_back_before_its_log_is_gone(service: Service, database_url: str) -> None:
    """Else the sweep would take its new log for the old one, or its project would see the old one."""
    await service.scripted("m", SCRIPT)
    branch = await service.branch(chat_model="m")
    run = await service.operate(branch)
    lines = await exported(service, f"/v1/branches/{branch}")
    connection = await asyncpg.connect(database_url)
    await connection.execute("INSERT INTO purged_logs SELECT id, project_id FROM runs")
    await connection.execute("DELETE FROM branches")
    await connection.close()
    without = [line for line in lines if line["object"] not in ("event", "tokens")]
    without[-2] = {**without[-2], "lines": len(without) - 3}
    for some in (lines, without):
        assert refusal(await sent(service, file_of(some))) == (409, "id_taken")
    engine = make_engine(database_url)
    await sweep(engine, now_ms=NOW_MS, days=None)
    assert (await imported(service, lines))["runs"] == 1
    await sweep(engine, now_ms=NOW_MS, days=None)
    await engine.dispose()
    assert len(await service.events(run["id"])) == run["last_seq"]


async def test_a_busy_branch_is_not_purged(service: Service) -> None:
    clients = Clients(service.http)
    branch = await service.branch()
    waiting = await clients.waiting(branch, {"function": await clients.tool("door"), "arguments": {}})
    refused = await service.http.post(f"/v1/branches/{branch}/purge")
    assert refusal(refused) == (409, "branch_busy")
    assert (await service.get(f"/v1/runs/{waiting['id']}"))["status"] == "waiting"


async def test_a_repeated_purge_is_answered_and_does_nothing(service: Service) -> None:
    await service.scripted("m", SCRIPT)
    branch = await service.branch(chat_model="m")
    await service.operate(branch)
    once = {"Idempotency-Key": "purge-it"}
    first = await service.http.post(f"/v1/branches/{branch}/purge", headers=once)
    run = await service.operate(branch)
    again = await service.http.post(f"/v1/branches/{branch}/purge", headers=once)
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(await service.events(run["id"])) == run["last_seq"]
