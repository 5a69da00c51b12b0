"""What becomes of a request for a branch that is busy: it waits, is refused, interrupts or rolls back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until_true
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

_numbers = itertools.count()

Steps = list[dict[str, Any]]

ANSWER: Steps = [{"text": "done"}, {"end": "stop"}]
SLOW: Steps = [{"text": "one "}, {"wait_ms": 60_000}, {"text": "two"}, {"end": "stop"}]
ADD = {"tool_call": {"index": 0, "id": "a", "name": "add", "arguments": '{"a": 1, "b": 2}'}}
HANG = {"tool_call": {"index": 1, "id": "b", "name": "forever", "arguments": "{}"}}
ACTS: Steps = [{"text": "acting"}, ADD, HANG, {"end": "tool_calls"}]
ADDS: Steps = [{"text": "adding"}, ADD, {"end": "tool_calls"}]


@pytest.fixture
async def pair(database_url: str) -> AsyncIterator[tuple[Service, Service]]:
    """Two processes on one database."""
    async with running(database_url) as one, running(database_url) as other:
        yield one, other


async def model(service: Service, *steps: dict[str, Any]) -> str:
    return await service.scripted(f"m{next(_numbers)}", list(steps))


async def said(service: Service, branch: str, query: str = "") -> list[tuple[str, Any]]:
    """Kind of each message, and what an instruction says."""
    found = (await service.get(f"/v1/branches/{branch}/messages?limit=1000{query}"))["data"]
    return [(m["kind"], m["content"].get("instruction")) for m in found]


async def acting(service: Service, branch: str) -> dict[str, Any]:
    """A run that has answered, has had one result, and whose other tool never ends by itself."""
    run = await service.started(
        branch, instruction="act", chat_model=await model(service, *ACTS), actions=True
    )

    async def halfway() -> bool:
        return len(await service.messages(branch)) >= 5

    await until_true(halfway)
    return run


TURN = [("instruction", "next"), ("assistant_response", None)]


@pytest.mark.parametrize("here", [True, False], ids=["same process", "another process"])
async def test_an_interrupted_run_ends_as_cancelled_and_what_it_said_stays(
    pair: tuple[Service, Service], here: bool
) -> None:
    one, other = pair
    branch = await one.branch(chat_model=await model(one, *ANSWER))
    first = await acting(one, branch)
    before = await said(one, branch)
    run = await (one if here else other).operate(branch, instruction="next", if_busy="interrupt")
    assert run["status"] == "completed"
    assert (await one.ended(first["id"]))["status"] == "cancelled"
    # The call that was open has its response, so that every request has one.
    assert await said(one, branch) == [*before, ("action_response", None), *TURN]


@pytest.mark.parametrize("here", [True, False], ids=["same process", "another process"])
async def test_what_a_run_said_that_was_rolled_back_is_left_out_and_kept(
    pair: tuple[Service, Service], here: bool
) -> None:
    one, other = pair
    branch = await one.branch(chat_model=await model(one, *ANSWER), system="Be brief.")
    await one.operate(branch, instruction="before")
    before = await said(one, branch)
    first = await acting(one, branch)
    run = await (one if here else other).operate(branch, instruction="next", if_busy="rollback")
    ended = await one.ended(first["id"])
    assert (run["status"], ended["status"]) == ("completed", "cancelled")
    for service in pair:
        assert await said(service, branch) == [*before, *TURN]
        everything = await service.get(f"/v1/branches/{branch}/messages?limit=1000&superseded=true")
        marked = [m["kind"] for m in everything["data"] if m["superseded"]]
        assert marked == [
            *("instruction", "assistant_response", "action_request", "action_request"),
            *("action_response",) * 2,
        ]
        assert len(everything["data"]) == len(before) + len(marked) + len(TURN)
    # Its log and its calls stay.
    assert len((await one.get(f"/v1/function-calls?run_id={first['id']}"))["data"]) == 2
    assert (await one.events(first["id"]))[-1]["type"] == "RUN_CANCELLED"
    forked = await one.http.post(f"/v1/branches/{branch}/fork")
    assert await said(one, forked.json()["id"]) == [*before, *TURN]


async def test_no_process_shows_a_model_what_was_rolled_back(pair: tuple[Service, Service]) -> None:
    """Although both had read the conversation with it, and keep what they read."""
    one, other = pair
    plain = [b'data: {"choices": [{"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}]}\n\n']
    async with ModelServer({"shown": [Attempt(chunks=[*plain, b"data: [DONE]\n\n"])]}) as server:
        await one.model("shown", provider="openai", base_url=server.base_url)
        branch = await one.branch(chat_model="shown")
        await one.operate(branch, instruction="before")
        await acting(one, branch)
        # To be queued they are planned, with all that is there.
        queued = [await service.started(branch, instruction="later") for service in pair]
        await other.operate(branch, instruction="next", if_busy="rollback")
        for run in queued:
            await one.ended(run["id"])
        for service in pair:
            await service.operate(branch, instruction="last")
        prompts = [[m["content"] for m in request.body["messages"]] for request in server.requests]
    turns = [["before"], ["next"], ["later"], ["later"], ["last"], ["last"]]
    expected: list[list[str]] = []
    for (text,) in turns:
        expected.append([*(expected[-1] + ["done"] if expected else []), text])
    assert prompts == expected


async def test_what_interrupts_takes_the_place_of_the_run_that_it_ends(service: Service) -> None:
    """Before those that were queued behind that one, which keep their order."""
    # Long enough that none of those in the queue has its turn before all have been sent.
    branch = await service.branch(chat_model=await model(service, {"wait_ms": 500}, *ANSWER))
    first = await service.started(branch, chat_model=await model(service, *SLOW))
    queued = [await service.started(branch, instruction=f"queued {n}") for n in range(3)]
    urgent = [
        await service.started(branch, instruction=f"urgent {n}", if_busy=how)
        for n, how in enumerate(["interrupt", "rollback"])
    ]
    for run in (*queued, *urgent):
        await service.ended(run["id"])
    assert (await service.get(f"/v1/runs/{first['id']}"))["status"] == "cancelled"
    found = [text for kind, text in await said(service, branch) if kind == "instruction"]
    # The second one had nothing more to end: the first was still about to.
    assert found[-3:] == ["queued 0", "queued 1", "queued 2"]
    assert found[:-3] in (["urgent 0", "urgent 1"], ["urgent 1"])


@pytest.mark.parametrize("how", ["interrupt", "rollback"])
async def test_a_run_that_waits_for_a_person_is_ended_too(pair: tuple[Service, Service], how: str) -> None:
    one, other = pair
    gate = {"rules": [{"when": "function == 'add'", "effect": "escalate"}]}
    branch = await one.branch(chat_model=await model(one, *ANSWER), gate=gate)
    answer = await one.http.post(
        f"/v1/branches/{branch}/operate",
        json={"instruction": "ask", "actions": True, "chat_model": await model(one, *ADDS)},
    )
    assert answer.json()["status"] == "waiting"
    await other.operate(branch, instruction="next", if_busy=how)
    assert (await one.ended(answer.json()["id"]))["status"] == "cancelled"
    (approval,) = (await one.get("/v1/approvals"))["data"]
    assert approval["status"] == "cancelled"
    asked = [("instruction", "ask"), ("assistant_response", None)]
    asked += [("action_request", None), ("action_response", None)]
    assert await said(one, branch) == ([*asked, *TURN] if how == "interrupt" else TURN)


@pytest.mark.parametrize("how", ["interrupt", "rollback"])
async def test_on_a_free_branch_there_is_nothing_to_end(service: Service, how: str) -> None:
    branch = await service.branch(chat_model=await model(service, *ANSWER))
    for _ in range(2):
        assert (await service.operate(branch, instruction="next", if_busy=how))["status"] == "completed"
    assert await said(service, branch) == TURN * 2


async def test_an_act_and_a_consensus_can_roll_back(service: Service) -> None:
    branch = await service.branch(chat_model=await model(service, *ANSWER))
    await acting(service, branch)
    request = {"function": "add", "arguments": {"a": 1, "b": 1}}
    await service.act(branch, request, if_busy="rollback")
    pairs = [("action_request", None), ("action_response", None)]
    assert await said(service, branch) == pairs
    await acting(service, branch)
    voters = [await model(service, *ANSWER) for _ in range(2)]
    await service.consensus(voters, branch_id=branch, instruction="vote", if_busy="rollback")
    assert await said(service, branch) == [*pairs, ("instruction", "vote"), ("assistant_response", None)]


async def test_a_repeat_of_a_rollback_joins_its_run_and_ends_nobody(pair: tuple[Service, Service]) -> None:
    one, _ = pair
    branch = await one.branch(chat_model=await model(one, *ANSWER))
    await acting(one, branch)

    async def asked(service: Service) -> Any:
        return await service.http.post(
            f"/v1/branches/{branch}/operate",
            json={"instruction": "next", "if_busy": "rollback"},
            headers={"Idempotency-Key": "once", "Prefer": "wait=50"},
        )

    first = await asked(one)
    active = await one.started(branch, chat_model=await model(one, *SLOW))
    for service in pair:
        again = await asked(service)
        assert (again.json()["id"], again.headers["Idempotency-Replayed"]) == (first.json()["id"], "true")
    assert (await one.get(f"/v1/runs/{active['id']}"))["status"] == "running"
    assert await said(one, branch) == TURN


async def test_two_hundred_clients_on_one_branch_leave_a_well_formed_conversation(
    pair: tuple[Service, Service],
) -> None:
    """Whatever they want of the run before them, and whichever process they ask."""
    chance = Random(7)
    branch = await pair[0].branch(chat_model=await model(pair[0], *ADDS))
    ways = ["enqueue"] * 8 + ["interrupt", "rollback"]

    async def client(n: int) -> dict[str, Any]:
        body = {"instruction": str(n), "actions": True, "if_busy": chance.choice(ways)}
        answer = await pair[n % 2].http.post(
            f"/v1/branches/{branch}/operate", json=body, headers={"Prefer": "respond-async"}
        )
        assert answer.status_code == 202, answer.text
        run: dict[str, Any] = answer.json()
        return run

    runs = await asyncio.gather(*(client(n) for n in range(200)))

    async def all_ended() -> bool:
        page = await pair[0].get(f"/v1/runs?branch_id={branch}&limit=1000")
        return all(run["ended_at"] is not None for run in page["data"])

    await until_true(all_ended, within_s=120)
    statuses = {run["id"]: run["status"] for run in (await pair[0].get("/v1/runs?limit=1000"))["data"]}
    assert len(statuses) == 200
    assert set(statuses.values()) <= {"completed", "cancelled"}
    everything = (await pair[0].get(f"/v1/branches/{branch}/messages?limit=1000&superseded=true"))["data"]
    assert [m["position"] for m in everything] == sorted({m["position"] for m in everything})
    turns = [(run, list(part)) for run, part in itertools.groupby(everything, lambda m: m["run_id"])]
    assert len({run for run, _ in turns}) == len(turns), "runs speak one after the other"
    whole = ["instruction", "assistant_response", "action_request", "action_response"]
    for run, turn in turns:
        kinds = [m["kind"] for m in turn]
        assert kinds == whole or (statuses[run] == "cancelled" and kinds in (whole, whole[:2])), kinds
        assert len({m["superseded"] for m in turn}) == 1
    completed = [run["id"] for run in runs if statuses[run["id"]] == "completed"]
    assert set(completed) <= {run for run, _ in turns}
