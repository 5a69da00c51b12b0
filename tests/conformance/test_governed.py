"""Governance and processors: one set of arguments for all, and no way around."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.acting import begun, call, pairs_of, rows_of, types_of
from tests.support.conformance_tools import SAID
from tests.support.hook_plugins import TOLD
from tests.support.polling import until
from tests.support.receiver import Receiver, Reply
from tests.support.service import Service

pytestmark = pytest.mark.anyio


def denies(when: str) -> dict[str, Any]:
    return {"rules": [{"when": when, "effect": "deny", "reason": "secret"}]}


async def test_without_a_gate_every_call_is_allowed(service: Service) -> None:
    run = await service.act(await service.branch(), call("say", text="a"))
    (row,) = await rows_of(service, run["id"])
    assert (row["status"], row["gate"]) == ("completed", None)
    assert "GATE_DENIED" not in [event["type"] for event in await service.events(run["id"])]


@pytest.mark.parametrize(
    "request_",
    [call("unknown"), call("say"), {"function": "say", "arguments": ["a"]}],
    ids=["no such tool", "missing argument", "no object"],
)
async def test_a_gate_is_not_asked_about_what_cannot_run(service: Service, request_: dict[str, Any]) -> None:
    async with Receiver() as receiver:
        branch = await service.branch(gate={"http": {"url": receiver.url("/gate")}})
        run = await service.act(branch, request_)
        assert receiver.received == []
    (row,) = await rows_of(service, run["id"])
    assert (row["status"], row["gate"]) == ("failed", None)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(body=b'{"effect": "allow"}'), "completed"),
        (Reply(body=b'{"effect": "deny", "reason": "no"}'), "skipped"),
        (Reply(body=b"false"), "skipped"),
        (Reply(body=b'{"effect": null}'), "skipped"),
        (Reply(body=b""), "skipped"),
        (Reply(500, body=b'{"effect": "allow"}'), "skipped"),
    ],
    ids=["allows", "denies", "false", "null", "nothing", "fails"],
)
async def test_only_a_plain_yes_allows(service: Service, reply: Reply, status: str) -> None:
    async with Receiver() as receiver:
        receiver.replies["/gate"] = [reply]
        branch = await service.branch(gate={"http": {"url": receiver.url("/gate")}})
        run = await service.act(branch, call("say", text="a"))
        asked = [json.loads(request.body) for request in receiver.received]
    (result,) = run["result"]
    assert result["status"] == status
    assert [(a["function"], a["arguments"], a["call_id"]) for a in asked] == [
        ("say", {"text": "a"}, result["call_id"])
    ]
    assert asked[0]["branch"]["id"] == branch
    assert (["a"] if status == "completed" else []) == SAID
    denials = [event for event in await service.events(run["id"]) if event["type"] == "GATE_DENIED"]
    assert len(denials) == (status == "skipped")


async def test_a_denial_is_stored_streamed_and_in_the_conversation(service: Service) -> None:
    branch = await service.branch(gate=denies("true"))
    live = [
        frame.data
        async for frame in service.stream(
            "POST", f"/v1/branches/{branch}/act", json={"requests": call("say", text="a")}
        )
        if frame.event != "stream.end"
    ]
    run_id = live[0]["run_id"]
    assert live == await service.events(run_id), "what is stored is told, whatever it says"
    assert [event["type"] for event in live].count("GATE_DENIED") == 1
    assert await types_of(service, run_id) == ["TOOL_REQUESTED"]
    ((_, answered),) = await pairs_of(service, branch)
    assert answered["output"] == {"error": "denied by governance gate", "function": "say"}
    assert TOLD[run_id] == []


@pytest.mark.parametrize(
    ("governance", "status", "error"),
    [
        ({"gate": denies("arguments.text == 'terces'")}, "skipped", "denied by governance gate"),
        ({"gate": denies("arguments.text == 'secret'")}, "skipped", "denied by governance gate"),
        (
            {"permissions": {"deny": {"turned": ["text=secret"]}}},
            "failed",
            "PERMISSION_DENIED: ",
        ),
        (
            {"permissions": {"escalate": {"turned": ["text=secret"]}}},
            "failed",
            "PERMISSION_DENIED: the tool's preprocessor changed the arguments",
        ),
    ],
    ids=["as asked", "as changed", "permissions", "a person"],
)
async def test_what_a_preprocessor_makes_of_the_arguments_is_judged_again(
    service: Service, governance: dict[str, Any], status: str, error: str
) -> None:
    branch = await service.branch(**governance)
    allowed = await service.act(branch, call("turned", text="other"))
    run = await service.act(branch, call("turned", text="terces"))
    assert allowed["result"][0]["output"] == "rehto"
    (result,) = run["result"]
    assert result["status"] == status
    assert result["error"].startswith(error)
    assert SAID == ["rehto"], "the tool was not reached"


async def test_unchanged_arguments_are_judged_once(service: Service) -> None:
    async with Receiver() as receiver:
        receiver.replies["/gate"] = [Reply(body=b'{"effect": "allow"}')]
        branch = await service.branch(gate={"http": {"url": receiver.url("/gate")}})
        await service.act(branch, call("turned", text="abba"))
        assert len(receiver.received) == 1
        await service.act(branch, call("turned", text="abc"))
        shown = [json.loads(request.body)["arguments"]["text"] for request in receiver.received]
    assert shown == ["abba", "abc", "cba"]


@pytest.mark.parametrize("native", [True, False], ids=["native", "in the answer"])
async def test_a_tool_that_is_not_offered_runs_neither_by_act_nor_by_operate(
    service: Service, native: bool
) -> None:
    request = call("say", text="a")
    if native:
        asked = {"index": 0, "id": "c", "name": "say", "arguments": '{"text": "a"}'}
        steps = [{"tool_call": asked}, {"end": "tool_calls"}]
    else:
        answer = {"value": "v", "action_required": True, "action_requests": [request]}
        steps = [{"text": json.dumps(answer)}, {"end": "stop"}]
    name, options = f"not-offered-{native}", {"native_tools": native, "native_schema": False}
    await service.model(name, provider="scripted", options={**options, "streams": [{"attempts": [steps]}]})
    branch = await service.branch(chat_model=name, tools=["add", "note"])
    acted = (await service.act(branch, request))["result"]
    operated = [
        (await service.operate(branch, actions=True, **more))["result"]["action_responses"]
        for more in ({}, {"tools": ["add"]})
    ]
    for (result,) in (acted, *operated):
        assert result["status"] == "failed"
        assert result["error"].startswith("TOOL_NOT_FOUND: ")
    assert SAID == []


async def test_act_and_operate_are_governed_alike(service: Service) -> None:
    asked = {"index": 0, "id": "c", "name": "say", "arguments": '{"text": "a"}'}
    model = await service.scripted("asks", [{"tool_call": asked}, {"end": "tool_calls"}])
    branch = await service.branch(chat_model=model, gate=denies("function == 'say'"))
    acted = (await service.act(branch, call("say", text="a")))["result"]
    operated = (await service.operate(branch, actions=True))["result"]["action_responses"]
    assert [{**r, "call_id": ""} for r in acted] == [{**r, "call_id": ""} for r in operated]
    assert SAID == []


@pytest.mark.parametrize(("strategy", "asked"), [("concurrent", 3), ("sequential", 1)])
async def test_a_cancelled_run_waits_for_no_gate(service: Service, strategy: str, asked: int) -> None:
    async with Receiver() as receiver:
        receiver.replies["/gate"] = [Reply(after=asyncio.Event())]
        gate = {"http": {"url": receiver.url("/gate"), "timeout_ms": 30_000}}
        branch = await service.branch(gate=gate)
        run = await begun(service, branch, requests=[call("say", text="a")] * 3, strategy=strategy)
        await until(lambda: receiver.open == asked)
        await service.http.post(f"/v1/runs/{run['id']}/cancel")
        assert (await service.ended(run["id"]))["status"] == "cancelled"
        assert len(receiver.received) == asked
    assert [row["status"] for row in await rows_of(service, run["id"])] == ["cancelled"] * 3
    assert len(await pairs_of(service, branch)) == 3
    assert "GATE_DENIED" not in [event["type"] for event in await service.events(run["id"])]


async def test_nor_for_one_that_is_asked_again(service: Service) -> None:
    async with Receiver() as receiver:
        receiver.replies["/gate"] = [Reply(body=b'{"effect": "allow"}'), Reply(after=asyncio.Event())]
        gate = {"http": {"url": receiver.url("/gate"), "timeout_ms": 30_000}}
        run = await begun(service, await service.branch(gate=gate), requests=call("turned", text="abc"))
        await until(lambda: len(receiver.received) == 2)
        await service.http.post(f"/v1/runs/{run['id']}/cancel")
        assert (await service.ended(run["id"]))["status"] == "cancelled"
    (row,) = await rows_of(service, run["id"])
    assert (row["status"], SAID) == ("cancelled", [])
