"""Client calls that nobody answers in time, that outlive a process, and that not everybody may answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.acting import call, rows_of
from tests.support.clients import Clients, refusal
from tests.support.database import migrated
from tests.support.postgres import PostgresServer
from tests.support.process import Process, serving
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

OPERATOR = "the operator's key of these tests"
SOON = {"client": {"expires_s": 0.2}}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """A service in which clients have little time, unless their tools say otherwise."""
    async with migrated(postgres) as url, running(url, client_call_s=0.2) as made:
        await Clients(made.http).tool("hasty")
        await Clients(made.http).tool("door", client={"expires_s": 600})
        yield made


@pytest.fixture
def clients(service: Service) -> Clients:
    return Clients(service.http)


async def test_what_nobody_brings_in_time_is_a_failure_and_the_run_goes_on(
    service: Service, clients: Clients
) -> None:
    run = await clients.waiting(await service.branch(), call("hasty"), call("door"), call("add", a=1, b=2))
    work, door = await clients.work(run_id=run["id"])
    await clients.brought(door)
    ended = await service.ended(run["id"])
    assert (ended["status"], [r["status"] for r in ended["result"]]) == (
        "completed",
        ["failed", "completed", "completed"],
    )
    assert ended["result"][0]["error"] == "TIMEOUT: no client brought a result within 0.2 s"
    late = await clients.bring(work, output="late")
    assert refusal(late) == (409, "call_not_waiting")
    assert late.json()["call_status"] == "expired"
    assert refusal(await clients.claim(work)) == (409, "call_not_waiting")
    assert [w["status"] for w in await clients.work(run_id=run["id"])] == ["expired", "answered"]


async def test_a_call_may_be_handed_over_again_when_its_time_is_over(
    service: Service, clients: Clients
) -> None:
    tool = await clients.tool("patient", idempotent=True, client={"expires_s": 600})
    params = {"retry_attempts": 1, "retry_timeout": 0.3}
    run = await clients.waiting(await service.branch(), call(tool), call_params=params)
    second = await clients.next_of(run["id"], 1)
    assert second["attempt"] == 2
    ended = await service.ended(run["id"])
    assert ended["result"][0]["error"] == "TIMEOUT: no client brought a result within 0.3 s"
    assert [row["status"] for row in await rows_of(service, run["id"])] == ["failed", "failed"]


@pytest.mark.parametrize("leased", [True, False])
async def test_cancelling_a_run_ends_its_calls(service: Service, clients: Clients, leased: bool) -> None:
    run = await clients.waiting(await service.branch(), call("door"), call("add", a=1, b=2))
    (work,) = await clients.work(run_id=run["id"])
    if leased:
        await clients.leased(work)
    assert (await service.http.post(f"/v1/runs/{run['id']}/cancel")).status_code in (200, 202)
    for answer in (await clients.bring(work, output=1), await clients.claim(work)):
        assert refusal(answer) == (409, "call_not_waiting"), "from then on, whatever has been done about it"
        assert answer.json()["call_status"] == "cancelled"
    ended = await service.ended(run["id"])
    assert ended["status"] == "cancelled"
    assert [row["status"] for row in await rows_of(service, run["id"])] == ["cancelled", "completed"]
    assert [w["status"] for w in await clients.work(run_id=run["id"])] == ["cancelled"]
    messages = await service.messages(ended["branch_id"])
    assert [m["kind"] for m in messages].count("action_response") == 2


async def test_a_result_that_was_taken_is_on_record_though_the_run_is_cancelled(
    service: Service, clients: Clients
) -> None:
    """While other calls of the run still go on, in this process."""
    branch = await service.branch()
    body = {"requests": [call("door"), call("forever")]}
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", json=body, headers={"Prefer": "respond-async"}
    )
    run = answer.json()
    work = await clients.next_of(run["id"], 0)
    await clients.brought(work, "taken")
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert (await service.ended(run["id"]))["status"] == "cancelled"
    door, forever = await rows_of(service, run["id"])
    assert (door["status"], door["execution"]["response"]) == ("completed", "taken")
    assert forever["status"] == "cancelled"


async def test_a_call_outlives_its_tool(service: Service, clients: Clients) -> None:
    tool = await clients.tool("short-lived", idempotent=True, client={"expires_s": 600})
    run = await clients.waiting(await service.branch(), call(tool), call_params={"retry_attempts": 1})
    (work,) = await clients.work(run_id=run["id"])
    assert (await service.http.delete(f"/v1/tools/{tool}")).status_code == 204
    await clients.brought(work, "still")
    assert (await service.ended(run["id"]))["result"][0]["output"] == "still"


@pytest.mark.parametrize("brought", [True, False])
async def test_a_run_that_cannot_go_on_keeps_what_was_brought(
    service: Service, clients: Clients, brought: bool
) -> None:
    asked = [{"index": n, "id": f"call_{n}", "name": "door", "arguments": "{}"} for n in range(2)]
    said: list[dict[str, Any]] = [{"tool_call": one} for one in asked]
    script = [{"text": "so"}, *said, {"end": "tool_calls"}]
    branch = await service.branch(chat_model=await service.scripted("gone", script))
    body = {"instruction": "go", "actions": True}
    answer = await service.http.post(f"/v1/branches/{branch}/operate", json=body)
    run = answer.json()
    first, second = await clients.work(run_id=run["id"])
    assert (await service.http.delete("/v1/models/gone")).status_code == 204
    if brought:
        await clients.brought(first, "taken")
    else:
        await service.http.post(f"/v1/runs/{run['id']}/cancel")
    ended = await service.ended(run["id"])
    assert ended["status"] == ("failed" if brought else "cancelled")
    rows = await rows_of(service, run["id"])
    assert [row["status"] for row in rows] == ["completed" if brought else "cancelled", "cancelled"]
    assert rows[0]["execution"]["response"] == ("taken" if brought else None)
    assert refusal(await clients.bring(second, output=1)) == (409, "call_not_waiting")


async def test_waiting_does_not_count_against_the_time_of_the_run(service: Service, clients: Clients) -> None:
    asked = {"index": 0, "id": "call_1", "name": "door", "arguments": "{}"}
    model = await service.scripted("limited", [{"text": "so"}, {"tool_call": asked}, {"end": "tool_calls"}])
    branch = await service.branch(chat_model=model)
    body = {"instruction": "go", "actions": True, "lifecycle": {"timeout": {"total_ms": 1_500}}}
    answer = await service.http.post(f"/v1/branches/{branch}/operate", json=body)
    assert answer.json()["status"] == "waiting"
    (work,) = await clients.work(run_id=answer.json()["id"])
    slow = await clients.waiting(await service.branch(), call("hasty"))
    await service.ended(slow["id"])
    slow = await clients.waiting(await service.branch(), call("door"), call_params={"retry_timeout": 2})
    await service.ended(slow["id"])  # longer than the other run may take
    await clients.brought(work)
    ended = await service.ended(answer.json()["id"])
    assert (ended["status"], ended["result"]["action_responses"][0]["output"]) == ("completed", "done")


@pytest.mark.parametrize("ending", ["killed", "stopped"])
async def test_a_call_waits_through_a_restart(database_url: str, tmp_path: Path, ending: str) -> None:
    async with serving(database_url, tmp_path) as first:
        clients = Clients(first.http)
        await clients.tool("door")
        branch = await _branch(first)
        run = await clients.waiting(branch, call("door"))
        (work,) = await clients.work(run_id=run["id"])
        token = await clients.leased(work)
        waited = await first.follow(run["id"], "RUN_WAITING")
        first.process.kill() if ending == "killed" else first.process.terminate()
        await first.process.wait()
    async with serving(database_url, tmp_path) as second:
        clients = Clients(second.http)
        assert refusal(await clients.bring(work, output=1)) == (409, "call_leased")
        await clients.brought(work, 7, lease_token=token)
        events = await second.follow(run["id"], "")
        assert events[: len(waited)] == waited
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["meta"]["result"][0]["output"] == 7


async def test_what_was_brought_to_a_process_that_dies_is_taken_up_by_another(
    database_url: str, tmp_path: Path
) -> None:
    """It is killed while another call of the batch runs, after it had waited once."""
    async with serving(database_url, tmp_path) as first:
        clients = Clients(first.http)
        await clients.tool("door")
        requests = [call("door", n=1), call("forever"), call("door", n=2)]
        run = await clients.waiting(await _branch(first), *requests, strategy="sequential")
        (work,) = await clients.work(run_id=run["id"])
        await clients.brought(work, "one")
        await first.follow(run["id"], "TOOL_RESULT")
        first.process.kill()
        await first.process.wait()
    async with serving(database_url, tmp_path) as second:
        clients = Clients(second.http)
        work = await clients.next_of(run["id"], 1)
        await clients.brought(work, "two")
        events = await second.follow(run["id"], "")
        results = events[-1]["meta"]["result"]
        assert [result["status"] for result in results] == ["completed", "aborted", "completed"]
        assert (results[0]["output"], results[2]["output"]) == ("one", "two")


async def test_a_result_is_on_record_though_its_run_is_lost(database_url: str, tmp_path: Path) -> None:
    """The process dies before the run has ever waited."""
    async with serving(database_url, tmp_path) as first:
        clients = Clients(first.http)
        await clients.tool("door")
        body = {"requests": [call("door", n=1), call("door", n=2), call("forever")]}
        run_id = await first.started(await _branch(first), "act", body)
        await clients.next_of(run_id, 1)
        one, two = await clients.work(run_id=run_id)
        await clients.brought(one, "taken")
        first.process.kill()
        await first.process.wait()
    async with serving(database_url, tmp_path) as second:
        clients = Clients(second.http)
        await second.follow(run_id, "RUN_WAITING")
        await clients.brought(two, "taken too")
        events = await second.follow(run_id, "")
        assert events[-1]["type"] == "RUN_COMPLETED"
        page = await second.http.get(f"/v1/function-calls?run_id={run_id}")
        rows = sorted(page.json()["data"], key=lambda row: row["index"])
        assert [row["status"] for row in rows] == ["completed", "completed", "aborted"]
        assert [row["execution"]["response"] for row in rows] == ["taken", "taken too", None]


async def test_a_result_brought_to_another_process_is_found(database_url: str, tmp_path: Path) -> None:
    async with serving(database_url, tmp_path / "one") as one, serving(database_url, tmp_path / "two") as two:
        clients = Clients(one.http)
        await clients.tool("door")
        run = await clients.waiting(await _branch(one), call("door"), call("door"))
        calls = await Clients(two.http).work(run_id=run["id"])
        await asyncio.gather(
            *(
                Clients(p.http).brought(work, n)
                for n, (p, work) in enumerate(zip((two, one), calls, strict=True))
            )
        )
        for follower in (one, two):
            events = await follower.follow(run["id"], "")
            assert events[-1]["type"] == "RUN_COMPLETED"
            assert [result["output"] for result in events[-1]["meta"]["result"]] == [0, 1]


async def _branch(service: Process) -> str:
    return str((await service.http.post("/v1/branches", json={})).json()["id"])


@pytest.fixture
async def closed(postgres: PostgresServer) -> AsyncIterator[Service]:
    """A service that asks for keys."""
    async with migrated(postgres) as url, running(url, bootstrap_key=OPERATOR) as made:
        made.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        yield made


async def test_the_results_of_a_project_are_brought_by_its_own_keys_that_may_run(closed: Service) -> None:
    async def project(name: str) -> Any:
        made = (await closed.http.post("/v1/projects", json={"name": name})).json()["id"]

        async def key(*scopes: str) -> Clients:
            body = {"name": "-".join(scopes), "scopes": scopes}
            answer = await closed.http.post(f"/v1/projects/{made}/keys", json=body)
            return Clients(closed.http, {"Authorization": f"Bearer {answer.json()['key']}"})

        return key

    ours, theirs = await project("ours"), await project("theirs")
    await (await ours("admin")).tool("door")
    worker, reader, approver = await ours("run", "read"), await ours("read"), await ours("approve")
    stranger = await theirs("run", "read")
    made = await closed.http.post("/v1/branches", json={}, headers=worker.headers)
    run = await worker.waiting(made.json()["id"], call("door"))
    (work,) = await reader.work()
    assert not await stranger.work()
    for who, status in ((reader, 403), (approver, 403), (stranger, 404)):
        assert (await who.claim(work)).status_code == status
        assert (await who.bring(work, output=1)).status_code == status
    given = (await worker.claim(work)).json()
    answer = await worker.bring(work, output=1, lease_token=given["lease_token"])
    assert answer.status_code == 200
    assert answer.json()["answered_by"] == given["leased_by"] is not None
    closed.http.headers.update(worker.headers)
    assert (await closed.ended(run["id"]))["status"] == "completed"
