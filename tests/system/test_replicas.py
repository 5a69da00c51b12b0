"""Several processes over one database: runs accepted by one, executed by another, ended by a third."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app import run_wiring
from app.services import elsewhere
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until, until_true
from tests.support.process import Process, serving
from tests.support.service import Service, running, text_by_offset

pytestmark = pytest.mark.anyio

HELLO: list[dict[str, Any]] = [{"text": "Hello"}, {"text": " world"}, {"end": "stop"}]
SLOW: list[dict[str, Any]] = [{"text": "one "}, {"text": "two "}, {"wait_ms": 60_000}, {"end": "stop"}]
PACED: list[dict[str, Any]] = [step for i in range(40) for step in ({"text": f"w{i} "}, {"wait_ms": 10})]
PACED_TEXT = "".join(f"w{i} " for i in range(40))


@pytest.fixture
async def replicas(database_url: str) -> AsyncIterator[tuple[Service, Service, Service]]:
    """An `api`, and two workers; all of them are whole services in this process."""
    async with AsyncExitStack() as stack:
        api, one, other = [
            await stack.enter_async_context(running(database_url, role=role))
            for role in ("api", "worker", "worker")
        ]
        yield api, one, other


@pytest.fixture
async def pair(database_url: str) -> AsyncIterator[tuple[Service, Service]]:
    """Two processes that do everything."""
    async with running(database_url) as one, running(database_url) as other:
        yield one, other


def executing(service: Service) -> int:
    """How many runs are executed there."""
    return len(service.made.app.state.running.runs._executor)


async def test_an_api_accepts_what_workers_execute(replicas: tuple[Service, Service, Service]) -> None:
    api, *workers = replicas
    model = await api.scripted("m", HELLO)
    branches = [await api.branch(chat_model=model) for _ in range(20)]
    runs = await asyncio.gather(*(api.operate(branch) for branch in branches))
    assert {run["result"] for run in runs} == {"Hello world"}
    events = await api.events(runs[0]["id"])
    assert [event["type"] for event in events[:2]] == ["RUN_QUEUED", "RUN_STARTED"]
    assert sum(worker.made.recorder.ends for worker in workers) == 20
    assert api.made.recorder.commits == api.made.recorder.ends == 0


async def test_runs_without_a_branch_are_taken_up_too(replicas: tuple[Service, Service, Service]) -> None:
    api, *_ = replicas
    voter = await api.scripted("voter", [{"text": "yes"}, {"end": "stop"}])
    run = await api.consensus([voter, voter])
    assert run["status"] == "completed"


async def test_the_queue_of_a_branch_keeps_its_order(replicas: tuple[Service, Service, Service]) -> None:
    api, *_ = replicas
    branch = await api.branch(chat_model=await api.scripted("m", HELLO))
    runs = [await api.started(branch, instruction=f"number {i}") for i in range(8)]
    for run in runs:
        assert (await api.ended(run["id"]))["status"] == "completed"
    said = [m["content"]["instruction"] for m in await api.messages(branch) if m["kind"] == "instruction"]
    assert said == [f"number {i}" for i in range(8)]


async def test_a_worker_answers_those_who_look_after_it_and_nobody_else(
    replicas: tuple[Service, Service, Service],
) -> None:
    _, worker, _ = replicas
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await worker.http.get(path)).status_code == 200
    for path in ("/v1/branches", "/v1/runs", "/v1/models", "/problems/not_found"):
        assert (await worker.http.get(path)).status_code == 404


async def test_what_an_api_accepts_waits_for_a_worker(database_url: str) -> None:
    async with running(database_url, role="api") as api:
        run = await api.started(await api.branch(chat_model=await api.scripted("m", HELLO)))
        assert run["status"] == "queued"
        refused = await api.http.post(
            f"/v1/branches/{run['branch_id']}/operate", json={"instruction": "x", "if_busy": "reject"}
        )
        assert (refused.status_code, refused.json()["code"]) == (409, "branch_busy")
        async with running(database_url, role="worker"):
            assert (await api.ended(run["id"]))["status"] == "completed"


async def test_a_run_is_followed_where_it_is_not_executed(pair: tuple[Service, Service]) -> None:
    here, there = pair
    run = await here.started(
        await here.branch(chat_model=await here.scripted("m", [*PACED, {"end": "stop"}]))
    )
    live = [frame.data async for frame in there.stream("GET", f"/v1/runs/{run['id']}/events")][:-1]
    assert text_by_offset(live) == PACED_TEXT
    assert live == await here.events(run["id"])
    assert there.made.recorder.commits == 0


async def test_nobody_is_told_of_what_nobody_follows(pair: tuple[Service, Service]) -> None:
    here, _ = pair
    branch = await here.branch(chat_model=await here.scripted("m", HELLO))
    for _ in range(5):
        await here.operate(branch)
    shown = [(await service.http.get("/metrics")).text for service in pair]
    assert ["branchline_hints_sent_total 0.0" in text for text in shown] == [True, True]
    assert ["branchline_hints_deaf 0.0" in text for text in shown] == [True, True]


async def test_a_cancellation_takes_effect_where_the_run_is(pair: tuple[Service, Service]) -> None:
    here, there = pair
    async with ModelServer({"m": [Attempt(chunks=[_text("one "), 600.0])]}) as server:
        await here.model("m", provider="openai", base_url=server.base_url)
        run = await here.started(await here.branch(chat_model="m"))
        async for frame in there.stream("GET", f"/v1/runs/{run['id']}/events"):
            if frame.event == "TOKEN":
                break
        cancelled = await there.http.post(f"/v1/runs/{run['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        await until(lambda: server.left_early)
    events = await there.events(run["id"])
    assert [event["type"] for event in events if event["type"].startswith("RUN_")][1:] == ["RUN_CANCELLED"]


async def test_a_cancellation_needs_no_hint(pair: tuple[Service, Service]) -> None:
    here, there = pair
    there.made.app.state.running.runs._hints.deaf = True
    run = await here.started(await here.branch(chat_model=await here.scripted("m", SLOW)))
    await until(lambda: executing(here) == 1)
    answer = await there.http.post(f"/v1/runs/{run['id']}/cancel")
    assert answer.status_code in (200, 202)
    assert (await there.ended(run["id"]))["status"] == "cancelled"


async def test_a_cancellation_that_races_with_the_end_leaves_one_end(pair: tuple[Service, Service]) -> None:
    here, there = pair
    model = await here.scripted("m", [{"text": "a"}, {"wait_ms": 20}, {"text": "b"}, {"end": "stop"}])

    async def race(number: int) -> None:
        run = await here.started(await here.branch(chat_model=model))
        await asyncio.sleep(number * 0.003)
        answers = await asyncio.gather(
            *(service.http.post(f"/v1/runs/{run['id']}/cancel") for service in pair)
        )
        ended = await here.ended(run["id"])
        types = [event["type"] for event in await there.events(run["id"])]
        terminal = [type for type in types if type in ("RUN_COMPLETED", "RUN_CANCELLED", "RUN_FAILED")]
        assert terminal == [f"RUN_{ended['status'].upper()}"]
        assert types[-1] == terminal[0]
        for answer in answers:
            if answer.status_code == 200:
                assert answer.json()["status"] == ended["status"] == "cancelled"

    await asyncio.gather(*(race(number) for number in range(16)))


async def test_a_queued_run_that_is_cancelled_elsewhere_ends_its_stream_here(
    pair: tuple[Service, Service],
) -> None:
    here, there = pair
    branch = await here.branch(chat_model=await here.scripted("slow", SLOW))
    active = await here.started(branch)
    queued = await here.started(branch)
    watching = asyncio.create_task(here.ended(queued["id"]))
    elsewhere = here.made.app.state.running.runs._elsewhere
    await until(lambda: elsewhere._watches)
    assert (await there.http.post(f"/v1/runs/{queued['id']}/cancel")).json()["status"] == "cancelled"
    assert (await watching)["status"] == "cancelled"
    await here.http.post(f"/v1/runs/{active['id']}/cancel")


async def test_a_decision_at_an_api_wakes_a_worker(replicas: tuple[Service, Service, Service]) -> None:
    api, *_ = replicas
    branch = await api.branch(gate={"rules": [{"when": "true", "effect": "escalate", "reason": "money"}]})
    call = {"function": "add", "arguments": {"a": 1, "b": 2}}
    run = (await api.http.post(f"/v1/branches/{branch}/act", json={"requests": [call]})).json()
    assert run["status"] == "waiting"
    (approval,) = (await api.get(f"/v1/approvals?run_id={run['id']}"))["data"]
    answer = await api.http.post(
        f"/v1/function-calls/{approval['function_call_id']}/decision", json={"decision": "approve"}
    )
    assert answer.status_code == 200, answer.text
    ended = await api.ended(run["id"])
    assert (ended["status"], ended["result"][0]["output"]) == ("completed", 3)


def _text(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


async def _ended_by(process: Process) -> int:
    shown = (await process.http.get("/metrics")).text
    (ends,) = re.findall(r"^branchline_runs_ended_total (\S+)$", shown, re.MULTILINE)
    return int(float(ends))


async def test_processes_of_their_own_share_the_work(database_url: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        api, *workers = [
            await stack.enter_async_context(
                serving(database_url, tmp_path / f"{index}", BRANCHLINE_ROLE=role, BRANCHLINE_LEASE_MS="3000")
            )
            for index, role in enumerate(("api", "worker", "worker"))
        ]
        spec = {"provider": "scripted", "model": "m", "options": {"streams": [{"attempts": [HELLO]}]}}
        assert (await api.http.put("/v1/models/m", json=spec)).status_code < 300

        async def one() -> str:
            branch = (await api.http.post("/v1/branches", json={"chat_model": "m"})).json()["id"]
            answer = await api.http.post(f"/v1/branches/{branch}/operate", json={"instruction": "go"})
            return str(answer.json()["result"])

        assert set(await asyncio.gather(*(one() for _ in range(40)))) == {"Hello world"}
        ends = [await _ended_by(worker) for worker in workers]
        assert sum(ends) == 40
        assert min(ends) > 0
        workers[0].process.kill()
        await workers[0].process.wait()
        assert {await one() for _ in range(3)} == {"Hello world"}


async def _hears(service: Service) -> bool:
    return "branchline_hints_deaf 0.0" in (await service.http.get("/metrics")).text


async def talking(service: Service, run: dict[str, Any]) -> None:
    """Follow a run until its model has said something."""
    async for frame in service.stream("GET", f"/v1/runs/{run['id']}/events"):
        if frame.event == "TOKEN":
            return


async def test_hints_alone_carry_a_run_through(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself for as long as this takes: what moves is hinted at."""
    monkeypatch.setattr(run_wiring, "BEAT_S", 600.0)
    monkeypatch.setattr(elsewhere, "LOOK_S", 600.0)
    lease_ms = 600_000
    async with (
        running(database_url, role="api", lease_ms=lease_ms) as api,
        running(database_url, role="worker", lease_ms=lease_ms) as one,
        running(database_url, role="worker", lease_ms=lease_ms) as other,
    ):
        for service in (api, one, other):
            await until_true(partial(_hears, service))
        branch = await api.branch(chat_model=await api.scripted("m", [*PACED, {"end": "stop"}]))
        for _ in range(3):
            assert (await api.operate(branch))["result"] == PACED_TEXT
        run = await api.started(branch)
        live = [frame.data async for frame in api.stream("GET", f"/v1/runs/{run['id']}/events")][:-1]
        assert live == await api.events(run["id"])
        slow = await api.scripted("slow", SLOW)
        await talking(api, await api.started(branch, chat_model=slow))
        assert (await api.operate(branch, if_busy="interrupt"))["result"] == PACED_TEXT
        endless = await api.started(branch, chat_model=slow)
        await talking(api, endless)
        cancelled = await api.http.post(f"/v1/runs/{endless['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
