"""Calls that somebody may stop: gates, permissions and hooks at work, in act and in operate."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.support.service import Service
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

_numbers = itertools.count()


def key() -> str:
    """A text that no other test uses."""
    return f"governed-{next(_numbers)}"


def deny(when: str, reason: str | None = None) -> dict[str, Any]:
    return {"rules": [{"when": when, "effect": "deny", "reason": reason}]}


async def types_of(service: Service, run: dict[str, Any]) -> list[str]:
    return [event["type"] for event in await service.events(run["id"])]


@pytest.mark.parametrize("suppress", [True, False], ids=["suppressed", "raised"])
async def test_a_call_that_a_gate_denies_is_a_value_and_never_runs(service: Service, suppress: bool) -> None:
    text = key()
    branch = await service.branch(gate=deny(f"arguments.text == '{text}'", "not this"))
    requests = [{"function": "note", "arguments": {"text": each}} for each in (text, text + "-other")]
    run = await service.act(
        branch, *requests, suppress_errors=suppress, call_params={"return_exceptions": True}
    )
    denied, allowed = run["result"]
    assert denied["output"] == {"error": "denied by governance gate", "function": "note"}
    assert (denied["status"], allowed["status"]) == ("skipped", "completed")
    assert (text in CALLS, text + "-other" in CALLS) == (False, True)
    rows = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    row = next(row for row in rows if row["status"] == "skipped")
    assert row["execution"]["error"] == {"error": "GATE_DENIED", "message": "not this"}
    assert row["gate"] == {
        "effect": "deny",
        "by": "branch.gate",
        "rule": "/rules/0",
        "reason": "not this",
        "arguments_digest": row["arguments_digest"],
    }
    events = [e for e in await service.events(run["id"]) if e["type"] == "GATE_DENIED"]
    (told,) = events
    assert (told["meta"]["toolName"], told["meta"]["by"], told["meta"]["reason"]) == (
        "note",
        "branch.gate",
        "not this",
    )
    kinds = [message["kind"] for message in await service.messages(branch)]
    assert kinds.count("action_request") == kinds.count("action_response") == 2


async def test_what_permissions_deny_is_an_error_of_its_own_type(service: Service) -> None:
    branch = await service.branch(permissions={"mode": "rules", "allow": {"add": ["*"]}})
    requests = [{"function": "add", "arguments": {"a": 1, "b": 2}}, {"function": "nothing", "arguments": {}}]
    run = await service.act(branch, *requests)
    allowed, denied = run["result"]
    assert (allowed["output"], denied["status"]) == (3, "failed")
    assert denied["error"].startswith("PERMISSION_DENIED: ")
    assert "GATE_DENIED" not in await types_of(service, run)


async def test_a_gate_sees_what_the_tool_would(service: Service) -> None:
    branch = await service.branch(gate={"rules": [{"when": "arguments == {}", "effect": "deny"}]})
    for arguments, denied in (({}, True), (None, True), ("", True)):
        run = await service.act(branch, {"function": "nothing", "arguments": arguments})
        assert (run["result"][0]["status"] == "skipped") is denied
    # Arguments that are no object never come to a gate.
    run = await service.act(branch, {"function": "nothing", "arguments": [1]})
    assert run["result"][0]["error"].startswith("INVALID_ARGUMENTS")


async def test_a_gate_that_cannot_be_asked_denies(service: Service) -> None:
    branch = await service.branch(gate={"http": {"url": "http://127.0.0.1:1/gate"}})
    run = await service.act(branch, {"function": "nothing", "arguments": {}})
    assert run["result"][0]["status"] == "skipped"
    (event,) = [e for e in await service.events(run["id"]) if e["type"] == "GATE_DENIED"]
    assert "could not be asked" in event["meta"]["reason"]


async def test_the_model_is_told_of_a_denial(service: Service) -> None:
    call = {"index": 0, "id": "call_1", "name": "nothing", "arguments": "{}"}
    model = await service.scripted(key(), [{"tool_call": call}, {"end": "tool_calls"}])
    branch = await service.branch(chat_model=model, gate=deny("function == 'nothing'"))
    run = await service.operate(branch, actions=True, tools=["nothing"])
    (response,) = run["result"]["action_responses"]
    assert response["output"] == {"error": "denied by governance gate", "function": "nothing"}
    types = await types_of(service, run)
    assert types.count("TOOL_REQUESTED") == types.count("GATE_DENIED") == 1
    assert {"TOOL_START", "TOOL_COMPLETED"} & set(types) == set()
    assert "denied by governance gate" in json.dumps(await service.messages(branch))


async def test_a_branch_cannot_allow_what_its_project_denies(service: Service) -> None:
    project = (await service.get("/v1/projects"))["data"][0]
    path = f"/v1/projects/{project['id']}"
    await service.http.patch(path, json={"gate": deny("function == 'refuse'", "of the project")})
    try:
        branch = await service.branch(gate={"rules": [{"when": "true", "effect": "allow"}]})
        run = await service.act(branch, {"function": "refuse", "arguments": {}})
        rows = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
        assert (rows[0]["status"], rows[0]["gate"]["by"]) == ("skipped", "project.gate")
    finally:
        await service.http.patch(path, json={"gate": None})
