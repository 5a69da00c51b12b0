"""A rolling upgrade: the version before the newest migration and this one, side by side on one database."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.adapters.db.engine import make_engine
from tests.conftest import ROOT
from tests.support.polling import until_true
from tests.support.postgres import PostgresServer
from tests.support.process import Process, serving_from
from tests.support.schemas import before_the_newest, downgrade, revisions
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

Steps = list[dict[str, Any]]

ANSWER: Steps = [{"text": "do"}, {"wait_ms": 5}, {"text": "ne"}, {"end": "stop"}]
SLOW: Steps = [{"text": "one "}, {"wait_ms": 60_000}, {"text": "two"}, {"end": "stop"}]
ADD = {"tool_call": {"index": 0, "id": "a", "name": "add", "arguments": '{"a": 1, "b": 2}'}}
ADDS: Steps = [{"text": "adding"}, ADD, {"end": "tool_calls"}]
HANG = {"tool_call": {"index": 0, "id": "a", "name": "forever", "arguments": "{}"}}
GATE = {"rules": [{"when": "function == 'add'", "effect": "escalate"}]}
TURN = ["instruction", "assistant_response"]


def git(*arguments: str) -> bytes:
    """What git says; nothing where it has nothing to say, as in a copy without its history."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the last commit that did not have the newest migration."""
    newest = Path(revisions()[-1].path).relative_to(ROOT)
    # Of merges what they brought to the branch that they are on.
    added = git("log", "--first-parent", "-m", "--format=%H", "--diff-filter=A", "-n1", "--", str(newest))
    before = f"{added.decode().strip()}^" if added else "HEAD"
    archive = git("archive", before, "app", "migrations", "tests")
    if not archive:
        pytest.skip("the history does not reach back to the version before the newest migration")
    tree = tmp_path_factory.mktemp("earlier")
    subprocess.run(["tar", "-x"], input=archive, cwd=tree, check=True)
    found = sorted(path.name[:4] for path in (tree / "migrations/versions").glob("[0-9]*.py"))
    assert found[-1] <= before_the_newest()
    return tree


async def test_a_database_that_is_in_use_is_brought_up_with_its_rows(postgres: PostgresServer) -> None:
    """Without the earlier version's code: its tables, with what this one can store in them."""
    async with postgres.database() as url:
        async with running(url) as service:
            model = await service.scripted("m", ADDS)
            branch = await service.branch(chat_model=model, gate=GATE, system="Be brief.")
            waits = await operate(service.http, branch, actions=True)
            queued = await operate(service.http, branch, prefer="respond-async")
            assert (waits["status"], queued["status"]) == ("waiting", "queued")
            had = await service.messages(branch)
            log = await events(service.http, waits)
        engine = make_engine(url)
        async with engine.connect() as connection:
            await connection.run_sync(downgrade, before_the_newest())
        await engine.dispose()
        async with running(url) as service:
            assert await service.messages(branch) == had
            assert await events(service.http, waits) == log
            (approval,) = (await service.get("/v1/approvals"))["data"]
            path = f"/v1/function-calls/{approval['function_call_id']}/decision"
            assert (await service.http.post(path, json={"decision": "approve"})).status_code == 200
            for run in (waits, queued):
                assert (await service.ended(run["id"]))["status"] == "completed"
            assert await said(service.http, branch) == [
                *("system", *TURN, "action_request", "action_response", *TURN)
            ]


@dataclass(slots=True)
class Versions:
    """The two, and what both have in common: they answer requests."""

    old: Process
    new: Service

    @property
    def both(self) -> list[httpx.AsyncClient]:
        """Their clients, the old one's first."""
        return [self.old.http, self.new.http]

    async def model(self, name: str, *steps: dict[str, Any]) -> str:
        await self.new.scripted(name, list(steps))
        return name


@pytest.fixture
async def versions(postgres: PostgresServer, earlier: Path, tmp_path: Path) -> AsyncIterator[Versions]:
    """The old version serves; then the new one is started beside it, and migrates."""
    environment = {"BRANCHLINE_SECRET_KEY": "a pepper for tests"}
    async with (
        postgres.database() as url,
        serving_from(earlier, url, tmp_path, **environment) as old,
        running(url, lease_ms=1000) as new,
    ):
        yield Versions(old, new)


async def operate(
    client: httpx.AsyncClient, branch: str, *, prefer: str = "wait=50", **body: Any
) -> dict[str, Any]:
    answer = await client.post(
        f"/v1/branches/{branch}/operate",
        json={"instruction": "go", **body},
        headers={"Prefer": prefer},
    )
    assert answer.status_code in (200, 202), answer.text
    run: dict[str, Any] = answer.json()
    return run


async def said(client: httpx.AsyncClient, branch: str) -> list[str]:
    answer = await client.get(f"/v1/branches/{branch}/messages?limit=1000")
    assert answer.status_code == 200, answer.text
    return [message["kind"] for message in answer.json()["data"]]


async def events(client: httpx.AsyncClient, run: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/runs/{run['id']}/events?limit=1000")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def test_both_serve_the_same_branches_and_read_each_other_s_runs(versions: Versions) -> None:
    made = await versions.old.http.post(
        "/v1/branches", json={"chat_model": await versions.model("m", *ANSWER)}
    )
    branches = [made.json()["id"], await versions.new.branch(chat_model="m")]
    for branch in branches:
        for n in range(6):
            run = await operate(versions.both[n % 2], branch, instruction=str(n))
            assert run["status"] == "completed"
            logs = [await events(client, run) for client in versions.both]
            assert logs[0] == logs[1]
            assert logs[0][-1]["type"] == "RUN_COMPLETED"
        for client in versions.both:
            assert await said(client, branch) == TURN * 6
    forks = [await client.post(f"/v1/branches/{branches[0]}/fork") for client in versions.both]
    for fork in forks:
        for client in versions.both:
            assert await said(client, fork.json()["id"]) == TURN * 6


async def test_many_clients_of_both_keep_one_order(versions: Versions) -> None:
    branch = await versions.new.branch(chat_model=await versions.model("m", *ADDS))
    runs = await asyncio.gather(
        *(operate(versions.both[n % 2], branch, instruction=str(n), actions=True) for n in range(20))
    )
    assert {run["status"] for run in runs} == {"completed"}
    whole = [*TURN, "action_request", "action_response"]
    for client in versions.both:
        assert await said(client, branch) == whole * 20


@pytest.mark.parametrize("asks", [0, 1], ids=["asked by the old", "asked by the new"])
async def test_a_run_that_waits_is_decided_and_carried_on_by_either(versions: Versions, asks: int) -> None:
    branch = await versions.new.branch(chat_model=await versions.model("m", *ADDS), gate=GATE)
    run = await operate(versions.both[asks], branch, actions=True)
    assert run["status"] == "waiting"
    other = versions.both[1 - asks]
    (approval,) = (await other.get(f"/v1/approvals?run_id={run['id']}")).json()["data"]
    path = f"/v1/function-calls/{approval['function_call_id']}/decision"
    assert (await other.post(path, json={"decision": "approve"})).status_code == 200
    assert (await versions.new.ended(run["id"]))["status"] == "completed"
    assert await said(other, branch) == [*TURN, "action_request", "action_response"]


@pytest.mark.parametrize("how", ["interrupt", "rollback"])
async def test_the_new_one_ends_a_run_of_the_old_one_and_takes_its_place(
    versions: Versions, how: str
) -> None:
    old, new = versions.both
    branch = await versions.new.branch(chat_model=await versions.model("m", *ANSWER))
    await versions.model("hangs", {"text": "x"}, HANG, {"end": "tool_calls"})
    held = await operate(old, branch, chat_model="hangs", actions=True, prefer="respond-async")

    async def acts() -> bool:
        return "action_request" in await said(new, branch)

    await until_true(acts)
    behind = await operate(old, branch, instruction="behind", prefer="respond-async")
    run = await operate(new, branch, instruction="first", if_busy=how)
    assert run["status"] == "completed"
    assert (await versions.new.ended(held["id"]))["status"] == "cancelled"
    await versions.new.ended(behind["id"])
    stays = [*TURN, "action_request", "action_response"] if how == "interrupt" else []
    assert await said(new, branch) == [*stays, *TURN, *TURN]
    found = (await new.get(f"/v1/branches/{branch}/messages?limit=1000")).json()["data"]
    assert [m["content"]["instruction"] for m in found if m["kind"] == "instruction"][-2:] == [
        "first",
        "behind",
    ]


async def test_what_the_old_one_leaves_when_it_goes_is_carried_on(versions: Versions) -> None:
    old, new = versions.both
    branch = await versions.new.branch(chat_model=await versions.model("m", *ANSWER))
    await versions.model("slow", *SLOW)
    held = await operate(old, branch, chat_model="slow", prefer="respond-async")
    queued = await operate(old, branch, prefer="respond-async")
    await versions.old.follow(held["id"], "TOKEN")
    versions.old.process.kill()
    await versions.old.process.wait()
    assert (await versions.new.ended(queued["id"]))["status"] == "completed"
    ended = await versions.new.ended(held["id"])
    assert ended["ended_at"] is not None
    log = await events(new, held)
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
