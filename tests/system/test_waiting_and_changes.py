"""Runs that wait for a person while what they need changes: whatever comes, nothing of them is left open."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db.engine import driver_arguments
from app.core.action.jsonable import MAX_OUTPUT
from app.core.lifecycle import faults
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until, until_true
from tests.support.service import Service, running
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

_numbers = itertools.count()
ESCALATE = {"rules": [{"when": "function != 'add'", "effect": "escalate"}]}
SLOW = {"seconds": 0.8, "value": "late"}
ADD = {"function": "add", "arguments": {"a": 1, "b": 2}}


def key() -> str:
    """A text that no other test uses."""
    return f"changed-{next(_numbers)}"


def note(text: str) -> dict[str, Any]:
    return {"function": "note", "arguments": {"text": text}}


async def operating(service: Service, model: str, text: str, **body: Any) -> dict[str, Any]:
    """A run of operate that waits with a call of `note`, after one of `add`."""
    branch = await service.branch(chat_model=model, gate=ESCALATE)
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate",
        json={"instruction": "go", "actions": True, "tools": ["note", "add"], **body},
    )
    assert (answer.status_code, answer.json()["status"]) == (202, "waiting"), answer.text
    run: dict[str, Any] = answer.json()
    return run


async def model_that_asks(service: Service, text: str) -> str:
    calls = [
        {"tool_call": {"index": 0, "id": "a", "name": "add", "arguments": '{"a": 1, "b": 2}'}},
        {"tool_call": {"index": 1, "id": "b", "name": "note", "arguments": f'{{"text": "{text}"}}'}},
    ]
    return await service.scripted(key(), [*calls, {"end": "tool_calls"}])


async def approval_of(service: Service, run: dict[str, Any]) -> dict[str, Any]:
    (found,) = (await service.get(f"/v1/approvals?run_id={run['id']}"))["data"]
    return dict(found)


async def decide(service: Service, approval: dict[str, Any], decision: str, **more: Any) -> Any:
    path = f"/v1/function-calls/{approval['function_call_id']}/decision"
    return await service.http.post(path, json={"decision": decision, **more})


async def assert_nothing_open(service: Service, run: dict[str, Any]) -> None:
    """Every call has an end, every request its response, and nobody is asked any more."""
    calls = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    assert [c["function"] for c in calls if c["ended_at"] is None] == []
    approvals = (await service.get(f"/v1/approvals?run_id={run['id']}"))["data"]
    assert "pending" not in [a["status"] for a in approvals]
    messages = await service.messages(run["branch_id"])
    messages = [m for m in messages if m["run_id"] == run["id"]]
    requests = [m["id"] for m in messages if m["kind"] == "action_request"]
    answered = [m["content"]["action_request_id"] for m in messages if m["kind"] == "action_response"]
    assert sorted(requests) == sorted(answered)
    events = await service.events(run["id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("then", ["approve", "cancel"])
async def test_a_model_that_is_gone_ends_the_run_and_its_calls(service: Service, then: str) -> None:
    text = key()
    model = await model_that_asks(service, text)
    run = await operating(service, model, text)
    assert (await service.http.delete(f"/v1/models/{model}")).status_code == 204
    if then == "approve":
        assert (await decide(service, await approval_of(service, run), "approve")).status_code == 200
    else:
        await service.http.post(f"/v1/runs/{run['id']}/cancel")
    ended = await service.ended(run["id"])
    assert ended["status"] == ("failed" if then == "approve" else "cancelled")
    assert text not in CALLS
    await assert_nothing_open(service, ended)


SILENCE = Attempt(head=b"", then="hang")


@pytest.mark.parametrize("strategy", ["concurrent", "sequential"])
async def test_a_cancellation_does_not_wait_for_a_gate(service: Service, strategy: str) -> None:
    async with ModelServer({"": [SILENCE]}) as gate:
        branch = await service.branch(gate={"http": {"url": gate.base_url, "timeout_ms": 30_000}})
        answer = await service.http.post(
            f"/v1/branches/{branch}/act",
            json={"requests": [ADD, ADD, ADD], "strategy": strategy},
            headers={"Prefer": "respond-async"},
        )
        await until(lambda: gate.requests)
        await service.http.post(f"/v1/runs/{answer.json()['id']}/cancel")
        ended = await asyncio.wait_for(service.ended(answer.json()["id"]), 10)
        assert ended["status"] == "cancelled"
        calls = (await service.get(f"/v1/function-calls?run_id={ended['id']}"))["data"]
        assert [call["status"] for call in calls] == ["cancelled"] * 3
        await assert_nothing_open(service, ended)
        await until(lambda: len(gate.left_early) == len(gate.requests))


@pytest.mark.parametrize("how", ["cancelled", "late"])
async def test_a_preprocessor_that_hangs_holds_up_nothing(service: Service, how: str) -> None:
    branch = await service.branch()
    request = {"function": "unready", "arguments": {"text": key()}}
    params = {"retry_timeout": 0.1} if how == "late" else {}
    answer = await service.http.post(
        f"/v1/branches/{branch}/act",
        json={"requests": [request], "call_params": params},
        headers={"Prefer": "respond-async"},
    )
    run_id = answer.json()["id"]

    async def begun() -> bool:
        return bool((await service.get(f"/v1/function-calls?run_id={run_id}"))["data"])

    if how == "cancelled":
        await until_true(begun)
        await service.http.post(f"/v1/runs/{run_id}/cancel")
    ended = await asyncio.wait_for(service.ended(run_id), 10)
    (call,) = (await service.get(f"/v1/function-calls?run_id={run_id}"))["data"]
    assert (ended["status"], call["status"], call["execution"]["error"]["error"]) == (
        ("cancelled", "cancelled", "CANCELLED") if how == "cancelled" else ("completed", "failed", "TIMEOUT")
    )
    await assert_nothing_open(service, ended)


FORBIDDEN = {"when": "function == 'note' && arguments.text.startsWith('evil')", "effect": "deny"}


async def waiting(service: Service, text: str, **policies: Any) -> dict[str, Any]:
    """A run of act that waits with a call of `note`."""
    branch = await service.branch(**policies)
    answer = await service.http.post(f"/v1/branches/{branch}/act", json={"requests": [note(text)]})
    assert answer.json()["status"] == "waiting"
    run: dict[str, Any] = answer.json()
    return run


async def test_nobody_can_edit_a_call_into_one_that_a_gate_denies(service: Service) -> None:
    gate = {"rules": [FORBIDDEN, *ESCALATE["rules"]]}
    run = await waiting(service, key(), gate=gate)
    text = "evil " + key()
    answer = await decide(service, await approval_of(service, run), "edit", arguments={"text": text})
    assert answer.status_code == 200
    ended = await service.ended(run["id"])
    assert (ended["result"][0]["status"], ended["result"][0]["error"]) == (
        "skipped",
        "denied by governance gate",
    )
    assert text not in CALLS
    types = [event["type"] for event in await service.events(run["id"])]
    assert types[-3:] == ["APPROVAL_DECIDED", "GATE_DENIED", "RUN_COMPLETED"]
    await assert_nothing_open(service, ended)


async def test_nobody_can_edit_a_call_into_one_that_permissions_deny(service: Service) -> None:
    permissions = {"escalate": {"note": ["*"]}, "deny": {"note": ["text=evil*"]}}
    run = await waiting(service, key(), permissions=permissions)
    text = "evil " + key()
    await decide(service, await approval_of(service, run), "edit", arguments={"text": text})
    ended = await service.ended(run["id"])
    assert ended["result"][0]["status"] == "failed"
    assert ended["result"][0]["error"].startswith("PERMISSION_DENIED: ")
    assert text not in CALLS
    await assert_nothing_open(service, ended)


@pytest.mark.parametrize("gate", [FORBIDDEN, {"when": "function == 'note'", "effect": "escalate"}])
async def test_a_gate_that_was_changed_while_a_call_waited_counts(
    service: Service, gate: dict[str, Any]
) -> None:
    text = "evil " + key()
    run = await waiting(service, text, gate=ESCALATE)
    changed = {"gate": {"rules": [gate]}}
    assert (await service.http.patch(f"/v1/branches/{run['branch_id']}", json=changed)).status_code == 200
    await decide(service, await approval_of(service, run), "approve")
    ended = await service.ended(run["id"])
    denied = gate is FORBIDDEN
    assert ended["result"][0]["status"] == ("skipped" if denied else "completed")
    assert CALLS.count(text) == (not denied)
    await assert_nothing_open(service, ended)


@pytest.mark.parametrize("loud", [False, True])
async def test_a_person_s_word_holds_for_what_the_preprocessor_makes_of_a_call(
    service: Service, loud: bool
) -> None:
    """Unless another rule escalates that: nobody was asked about it."""
    text = key()
    rules = [{"when": "arguments.text.startsWith('CHANGED')", "effect": "escalate"}] if loud else []
    rules.append({"when": "function == 'shout'", "effect": "escalate"})
    branch = await service.branch(gate={"rules": rules})
    request = {"function": "shout", "arguments": {"text": text}}
    run = (await service.http.post(f"/v1/branches/{branch}/act", json={"requests": [request]})).json()
    await decide(service, await approval_of(service, run), "approve")
    ended = await service.ended(run["id"])
    assert ended["result"][0]["status"] == ("failed" if loud else "completed")
    assert (text.upper() in CALLS) is not loud


async def test_the_deadline_counts_what_a_run_took_before_it_waited(service: Service) -> None:
    """Three times 0.8 seconds, each shorter than the deadline, and together longer."""
    texts = [key() for _ in range(3)]
    steps = [step for text in texts for step in (note(text), {"function": "later", "arguments": SLOW})]
    calls = [
        {
            "tool_call": {
                "index": index,
                "id": f"c{index}",
                "name": step["function"],
                "arguments": json.dumps(step["arguments"]),
            }
        }
        for index, step in enumerate(steps)
    ]
    model = await service.scripted(key(), [*calls, {"end": "tool_calls"}])
    gate = {"rules": [{"when": "function == 'note'", "effect": "escalate"}]}
    branch = await service.branch(chat_model=model, gate=gate)
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate",
        json={
            "instruction": "go",
            "actions": True,
            "action_strategy": "sequential",
            "lifecycle": {"timeout": {"total_ms": 1500}},
        },
    )
    run = answer.json()
    while run["status"] not in ("completed", "failed"):
        pending = (await service.get(f"/v1/approvals?run_id={run['id']}&status=pending"))["data"]
        for approval in pending:
            await decide(service, approval, "approve")
        run = await service.get(f"/v1/runs/{run['id']}")
    assert (run["status"], run["error"]["code"]) == ("failed", faults.DEADLINE.code)
    assert texts[2] not in CALLS
    await assert_nothing_open(service, run)


async def test_what_was_cut_is_still_said_to_be_after_the_waiting(service: Service) -> None:
    branch = await service.branch(permissions={"escalate": {"note": ["*"]}})
    large: dict[str, Any] = {"function": "echo", "arguments": {"value": "x" * (MAX_OUTPUT + 1)}}
    lookalike = {"function": "echo", "arguments": {"value": {"output": "x", "output_truncated": True}}}
    body = {"requests": [large, lookalike, note(key())]}
    run = (await service.http.post(f"/v1/branches/{branch}/act", json=body)).json()
    await decide(service, await approval_of(service, run), "approve")
    ended = await service.ended(run["id"])
    assert [result.get("output_truncated") for result in ended["result"]] == [True, None, None]


async def test_a_run_is_told_to_wait_when_that_is_on_record(database_url: str) -> None:
    async with running(database_url) as service:
        branch = await service.branch(gate={"rules": [{"when": "function == 'note'", "effect": "escalate"}]})
        later = {"function": "later", "arguments": SLOW}
        asking = asyncio.create_task(
            service.http.post(
                f"/v1/branches/{branch}/act",
                json={"requests": [later, note(key())], "strategy": "sequential"},
                headers={"Prefer": "wait=3"},
            )
        )

        async def has_begun() -> bool:
            return bool((await service.get(f"/v1/runs?branch_id={branch}"))["data"])

        await until_true(has_begun)
        connection = await asyncpg.connect(**driver_arguments(database_url))
        try:
            async with connection.transaction():
                # Nothing that the run says from here on can be written.
                await connection.execute("SELECT FROM branches WHERE id = $1 FOR UPDATE", UUID(branch))
                answer = await asking
            assert (answer.status_code, answer.json()["status"]) == (202, "running")
        finally:
            await connection.close()
        run = answer.json()

        async def waiting() -> bool:
            return bool((await service.get(f"/v1/runs/{run['id']}"))["status"] == "waiting")

        await until_true(waiting)
        assert (await approval_of(service, run))["status"] == "pending"
