"""Approvals that nobody decides in time, that outlive a process, and that not everybody may decide."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.database import migrated
from tests.support.postgres import PostgresServer
from tests.support.process import Process, serving
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

ESCALATE = {"rules": [{"when": "function == 'echo'", "effect": "escalate"}]}
BODY = {"requests": [{"function": "echo", "arguments": {"value": 7}}]}
OPERATOR = "the operator's key of these tests"


@pytest.fixture
async def hasty(postgres: PostgresServer) -> AsyncIterator[Service]:
    """A service in which nobody has much time to decide."""
    async with migrated(postgres) as url, running(url, approval_s=0.2) as made:
        yield made


async def test_what_nobody_decides_in_time_is_not_done(hasty: Service) -> None:
    branch = await hasty.branch(gate=ESCALATE)
    answer = await hasty.http.post(f"/v1/branches/{branch}/act", json=BODY)
    assert answer.status_code == 202
    ended = await hasty.ended(answer.json()["id"])
    (result,) = ended["result"]
    assert (ended["status"], result["status"]) == ("completed", "skipped")
    assert result["error"].startswith("APPROVAL_EXPIRED: ")
    (approval,) = (await hasty.get(f"/v1/approvals?run_id={ended['id']}"))["data"]
    assert approval["status"] == "expired"
    late = await hasty.http.post(
        f"/v1/function-calls/{approval['function_call_id']}/decision", json={"decision": "approve"}
    )
    assert (late.status_code, late.json()["code"]) == (409, "already_decided")
    (event,) = [e for e in await hasty.events(ended["id"]) if e["type"] == "APPROVAL_DECIDED"]
    assert (event["meta"]["decision"], event["meta"]["decidedBy"]) == ("expired", None)


async def _approval(service: Process, run_id: str) -> dict[str, Any]:
    (found,) = (await service.http.get(f"/v1/approvals?run_id={run_id}")).json()["data"]
    return dict(found)


@pytest.mark.parametrize("ending", ["killed", "stopped"])
async def test_a_run_waits_through_a_restart(database_url: str, tmp_path: Path, ending: str) -> None:
    async with serving(database_url, tmp_path) as first:
        branch = (await first.http.post("/v1/branches", json={"gate": ESCALATE})).json()["id"]
        run_id = (await first.http.post(f"/v1/branches/{branch}/act", json=BODY)).json()["id"]
        waited = await first.follow(run_id, "RUN_WAITING")
        first.process.kill() if ending == "killed" else first.process.terminate()
        await first.process.wait()
    async with serving(database_url, tmp_path) as second:
        run = (await second.http.get(f"/v1/runs/{run_id}")).json()
        assert run["status"] == "waiting"
        approval = await _approval(second, run_id)
        path = f"/v1/function-calls/{approval['function_call_id']}/decision"
        assert (await second.http.post(path, json={"decision": "approve"})).status_code == 200
        events = await second.follow(run_id, "")
        assert events[: len(waited)] == waited
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["meta"]["result"][0]["output"] == 7


async def test_a_decision_taken_in_another_process_is_found(database_url: str, tmp_path: Path) -> None:
    async with serving(database_url, tmp_path / "one") as one, serving(database_url, tmp_path / "two") as two:
        branch = (await one.http.post("/v1/branches", json={"gate": ESCALATE})).json()["id"]
        run_id = (await one.http.post(f"/v1/branches/{branch}/act", json=BODY)).json()["id"]
        await one.follow(run_id, "RUN_WAITING")
        approval = await _approval(two, run_id)
        path = f"/v1/function-calls/{approval['function_call_id']}/decision"
        answer = await two.http.post(path, json={"decision": "deny", "reason": "no"})
        assert answer.status_code == 200
        for follower in (one, two):
            events = await follower.follow(run_id, "")
            assert events[-1]["type"] == "RUN_COMPLETED"
            assert events[-1]["meta"]["result"][0]["error"] == "APPROVAL_DENIED: no"


@pytest.fixture
async def closed(postgres: PostgresServer) -> AsyncIterator[Service]:
    """A service that asks for keys."""
    async with migrated(postgres) as url, running(url, bootstrap_key=OPERATOR) as made:
        made.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        yield made


async def test_who_asked_does_not_decide_unless_the_project_lets_it(closed: Service) -> None:
    project = (await closed.http.post("/v1/projects", json={"name": "ours"})).json()["id"]

    async def key(*scopes: str) -> dict[str, str]:
        made = await closed.http.post(
            f"/v1/projects/{project}/keys", json={"name": "-".join(scopes), "scopes": scopes}
        )
        return {"Authorization": f"Bearer {made.json()['key']}"}

    worker, person, reader = (
        await key("run", "read", "approve"),
        await key("approve", "read"),
        await key("read"),
    )

    async def waiting() -> str:
        made = await closed.http.post("/v1/branches", json={"gate": ESCALATE}, headers=worker)
        path = f"/v1/branches/{made.json()['id']}/act"
        run_id = (await closed.http.post(path, json=BODY, headers=worker)).json()["id"]
        page = await closed.http.get(f"/v1/approvals?run_id={run_id}", headers=reader)
        return str(page.json()["data"][0]["function_call_id"])

    async def decide(call: str, who: dict[str, str]) -> int:
        path = f"/v1/function-calls/{call}/decision"
        answer = await closed.http.post(path, json={"decision": "approve"}, headers=who)
        return answer.status_code

    call = await waiting()
    assert [await decide(call, who) for who in (reader, worker, person)] == [403, 403, 200]
    changed = await closed.http.patch(f"/v1/projects/{project}", json={"self_approval": True})
    assert changed.status_code == 200
    assert await decide(await waiting(), worker) == 200
    log = (await closed.http.get("/v1/audit-log", headers=await key("admin"))).json()["data"]
    assert [entry["action"] for entry in log].count("approval.approve") == 2
