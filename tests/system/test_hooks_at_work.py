"""Hooks around the calls of a run: which may stop it, what they are told, and what they cannot change."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.clients import Clients
from tests.support.database import migrated
from tests.support.hook_plugins import LEFT, LONG, RAN, TOLD, points
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.receiver import Receiver, Reply
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

PLUGINS = {
    "tool_modules": ("tests.support.tools", "tests.support.hook_plugins"),
    "hook_modules": ("tests.support.hook_plugins",),
}
STRATEGIES = pytest.mark.parametrize("strategy", ["concurrent", "sequential"])

_numbers = itertools.count()


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The service with the hooks and tools of the plug-in."""
    async with migrated(postgres) as url, running(url, **PLUGINS) as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Where stored hooks are posted to."""
    async with Receiver() as made:
        yield made


def value() -> str:
    """One that no other test passes on."""
    return f"value-{next(_numbers)}"


def call(function: str, **arguments: Any) -> dict[str, Any]:
    return {"function": function, "arguments": arguments}


async def row_of(service: Service, run: dict[str, Any]) -> dict[str, Any]:
    """The only function call of a run."""
    rows = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    assert len(rows) == 1
    row: dict[str, Any] = rows[0]
    return row


async def types_of(service: Service, run: dict[str, Any]) -> list[str]:
    """The types of what happened to the calls of a run."""
    return [e["type"] for e in await service.events(run["id"]) if e["type"].startswith("TOOL_")]


BLOCKING = {
    "blocked": "blocks: not today",
    "raised": "raises: RuntimeError: a hook of the tests fails",
    "late": "hangs: no answer within 0.05 s",
}


@STRATEGIES
@pytest.mark.parametrize("tool", BLOCKING)
async def test_a_hook_that_objects_fails_or_is_late_blocks_the_call(
    service: Service, tool: str, strategy: str
) -> None:
    text = value()
    run = await service.act(await service.branch(), call(tool, value=text), strategy=strategy)
    (result,) = run["result"]
    error = f"HOOK_BLOCKED: {BLOCKING[tool]}"
    assert (result["status"], result["error"]) == ("failed", error)
    assert result["output"] == {"error": error, "function": tool, "arguments": {"value": text}}
    assert text not in RAN
    assert await types_of(service, run) == ["TOOL_REQUESTED", "TOOL_ERROR", "TOOL_COMPLETED"]
    row = await row_of(service, run)
    assert row["execution"]["error"] == {"error": "HOOK_BLOCKED", "message": BLOCKING[tool]}
    asked, answered = await service.messages(run["branch_id"])
    assert asked["content"]["action_response_id"] == answered["id"]
    assert (answered["content"]["error"], answered["content"]["output"]) == (error, result["output"])
    # Whoever comes after the one that blocks is not asked, and all hear of the failure.
    assert points(run["id"], "last") == ["TOOL_ERROR"]
    assert points(run["id"], "first") == ["TOOL_PRE", "TOOL_ERROR"]


async def test_a_block_ends_the_request_if_failures_are_not_suppressed(service: Service) -> None:
    branch = await service.branch()
    body = {"requests": call("blocked"), "suppress_errors": False}
    answer = await service.http.post(f"/v1/branches/{branch}/act", json=body)
    assert (answer.status_code, answer.json()["code"]) == (424, "tool_failed")
    assert [m["kind"] for m in await service.messages(branch)] == ["action_request", "action_response"]


async def test_a_model_is_told_why_its_call_was_blocked(service: Service) -> None:
    asked = {"index": 0, "id": "call_1", "name": "blocked", "arguments": "{}"}
    model = await service.scripted(value(), [{"tool_call": asked}, {"end": "tool_calls"}])
    branch = await service.branch(chat_model=model)
    run = await service.operate(branch, actions=True, tools=["blocked"])
    (response,) = run["result"]["action_responses"]
    assert response["error"] == "HOOK_BLOCKED: blocks: not today"
    assert "not today" in json.dumps(await service.messages(branch))


async def test_stopping_ends_the_chain_and_not_the_call(service: Service) -> None:
    text = value()
    run = await service.act(await service.branch(), call("stopped", value=text))
    assert run["result"][0]["output"] == text
    assert text in RAN
    assert points(run["id"], "first") == ["TOOL_PRE", "TOOL_POST"]
    assert points(run["id"], "last") == ["TOOL_POST"]


@pytest.mark.parametrize("result", [{"output": 1}, {"error": {"type": "E", "message": "m"}}])
async def test_a_call_that_a_client_carries_out_is_asked_about_once_and_told_of_when_it_ends(
    service: Service, result: dict[str, Any]
) -> None:
    clients = Clients(service.http)
    run = await clients.waiting(await service.branch(), call(await clients.tool("door")))
    assert points(run["id"]) == ["TOOL_PRE"]
    (work,) = await clients.work(run_id=run["id"])
    assert (await clients.bring(work, **result)).status_code == 200
    await service.ended(run["id"])
    assert points(run["id"]) == ["TOOL_PRE", "TOOL_POST" if "output" in result else "TOOL_ERROR"]
    (*_, (_, told)) = [entry for entry in TOLD[run["id"]] if entry[0] == "first"]
    assert told.duration_s is not None
    assert str(told.call_id) == work["call_id"]


async def test_a_client_gets_no_call_that_a_hook_blocks(service: Service, receiver: Receiver) -> None:
    clients = Clients(service.http)
    tool = await clients.tool("hatch")
    receiver.replies["/shut"] = [Reply(403, body=b'{"reason": "it stays shut"}')]
    hook = {"point": "TOOL_PRE", "tool": tool, "http": {"url": receiver.url("/shut")}}
    run = await service.act(await service.branch(hooks=[hook]), call(tool))
    assert run["result"][0]["error"].startswith("HOOK_BLOCKED: ")
    assert not await clients.work(run_id=run["id"])


async def test_hooks_are_asked_one_after_the_other(service: Service) -> None:
    run = await service.act(await service.branch(), call("ordered"))
    before = [name for name, event in TOLD[run["id"]] if event.point == "TOOL_PRE"]
    assert before == ["first", "later", "last"]


@STRATEGIES
async def test_a_success_is_told_with_the_id_of_the_call_and_the_beginning_of_both_ends(
    service: Service, strategy: str
) -> None:
    branch = await service.branch()
    run = await service.act(branch, call("echo", value=LONG), call("long_text"), strategy=strategy)
    for result in run["result"]:
        told = [e for name, e in TOLD[run["id"]] if name == "first" and str(e.call_id) == result["call_id"]]
        before, after = told
        assert (before.point, after.point) == ("TOOL_PRE", "TOOL_POST")
        arguments = str(result["arguments"])[:200]
        assert {before.arguments_summary, after.arguments_summary} == {arguments}
        assert {before.tool_name, after.tool_name} == {result["function"]}
        assert (before.result_summary, before.duration_s, before.error) == (None, None, None)
        assert (after.result_summary, after.error) == (LONG[:200], None)
        assert after.duration_s is not None
        assert after.duration_s >= 0
        assert {str(before.branch_id), str(after.branch_id)} == {branch}
        assert result["output"] == LONG, "what is shown is cut, and not what it is shown of"
    assert len({result["call_id"] for result in run["result"]}) == 2


async def test_a_failure_is_told_with_how_long_it_took(service: Service) -> None:
    run = await service.act(await service.branch(), call("breaks", why="no paper"))
    before, after = [event for name, event in TOLD[run["id"]] if name == "first"]
    assert (before.point, after.point) == ("TOOL_PRE", "TOOL_ERROR")
    assert before.call_id == after.call_id
    assert after.error is not None
    assert (after.error.type, after.error.message) == ("ValueError", "no paper")
    assert after.result_summary is None
    row = await row_of(service, run)
    assert after.duration_s is not None
    assert abs(after.duration_s - row["execution"]["duration"]) < 1


@pytest.mark.parametrize(
    ("request_", "type"),
    [
        (call("nobody"), "TOOL_NOT_FOUND"),
        (call("add", a=1), "INVALID_ARGUMENTS"),
        ({"function": "add", "arguments": [1, 2]}, "INVALID_ARGUMENTS"),
    ],
    ids=["no such tool", "missing argument", "no object"],
)
async def test_a_call_that_cannot_run_is_a_failure_without_a_duration(
    service: Service, request_: dict[str, Any], type: str
) -> None:
    run = await service.act(await service.branch(), request_)
    (told,) = [event for name, event in TOLD[run["id"]] if name == "first"]
    assert (told.point, str(told.call_id)) == ("TOOL_ERROR", run["result"][0]["call_id"])
    assert told.error is not None
    assert (told.error.type, told.duration_s) == (type, None)


async def test_a_denied_call_is_told_to_no_hook(service: Service) -> None:
    denied = await service.branch(gate={"rules": [{"when": "true", "effect": "deny"}]})
    run = await service.act(denied, call("free"))
    assert run["result"][0]["status"] == "skipped"
    assert TOLD[run["id"]] == []
    barred = await service.branch(permissions={"mode": "deny_all"})
    run = await service.act(barred, call("free"))
    # Permissions make a failure of it, and failures are told.
    assert points(run["id"]) == ["TOOL_ERROR"]


async def test_each_attempt_is_asked_about_and_told_of(service: Service) -> None:
    run = await service.act(await service.branch(), call("repeated"), call_params={"retry_attempts": 1})
    assert points(run["id"]) == ["TOOL_PRE", "TOOL_ERROR"] * 2
    assert len({event.call_id for _, event in TOLD[run["id"]]}) == 1


@STRATEGIES
@pytest.mark.parametrize(("tool", "status"), [("unmoved", "completed"), ("breaks_unmoved", "failed")])
async def test_after_the_call_no_hook_changes_anything(
    service: Service, tool: str, status: str, strategy: str
) -> None:
    run = await service.act(await service.branch(), call(tool), call("free"), strategy=strategy)
    assert run["status"] == "completed"
    assert [result["status"] for result in run["result"]] == [status, "completed"]
    expected = None if status == "completed" else "ValueError: broken"
    assert run["result"][0]["error"] == expected
    messages = {m["id"]: m for m in await service.messages(run["branch_id"])}
    asked = [m for m in messages.values() if m["kind"] == "action_request"]
    answers = [messages[m["content"]["action_response_id"]]["content"] for m in asked]
    assert [answer["error"] for answer in answers] == [expected, None]
    # One that fails does not keep the news from the next.
    assert len(points(run["id"], "last")) == 4


async def test_cancelling_a_run_takes_its_call_from_a_hook_that_waits(service: Service) -> None:
    branch, text = await service.branch(), value()
    answer = await service.http.post(
        f"/v1/branches/{branch}/act",
        json={"requests": call("waited", value=text)},
        headers={"Prefer": "respond-async"},
    )
    run = answer.json()
    await until(lambda: points(run["id"]) == ["TOOL_PRE"])
    assert (await row_of(service, run))["status"] == "processing"
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    ended = await service.ended(run["id"])
    assert ended["status"] == "cancelled"
    assert (await row_of(service, run))["status"] == "cancelled"
    assert text not in RAN
    await until(lambda: run["id"] in LEFT)
    asked, answered = await service.messages(branch)
    assert asked["content"]["action_response_id"] == answered["id"]
    assert points(run["id"]) == ["TOOL_PRE"], "a cancelled call is neither a success nor a failure"


async def test_a_failing_sibling_takes_a_call_from_a_hook_that_waits(service: Service) -> None:
    branch = await service.branch()
    body = {"requests": [call("waited"), call("breaks")], "suppress_errors": False}
    answer = await service.http.post(f"/v1/branches/{branch}/act", json=body)
    assert answer.status_code == 424
    run_id = answer.json()["run_id"]
    rows = (await service.get(f"/v1/function-calls?run_id={run_id}"))["data"]
    assert {row["function"]: row["status"] for row in rows} == {"waited": "cancelled", "breaks": "failed"}
    await until(lambda: run_id in LEFT)


# Hooks that projects and branches store


def hook(receiver: Receiver, path: str, point: str = "TOOL_PRE", tool: str = "free") -> dict[str, Any]:
    return {"point": point, "tool": tool, "http": {"url": receiver.url(path)}}


@pytest.mark.parametrize("objecting", ["installed", "project", "branch", None])
async def test_the_installation_is_asked_first_then_the_project_then_the_branch(
    service: Service, receiver: Receiver, objecting: str | None
) -> None:
    project = (await service.get("/v1/projects"))["data"][0]
    tool = "blocked" if objecting == "installed" else "free"
    for level in ("project", "branch"):
        no = Reply(403, body=json.dumps({"reason": f"the {level} says no"}).encode())
        receiver.replies[f"/{level}"] = [no if level == objecting else Reply()]
    path = f"/v1/projects/{project['id']}"
    await service.http.patch(path, json={"hooks": [hook(receiver, "/project", tool=tool)]})
    try:
        branch = await service.branch(hooks=[hook(receiver, "/branch", tool=tool)])
        run = await service.act(branch, call(tool))
    finally:
        await service.http.patch(path, json={"hooks": None})
    asked = {"installed": [], "project": ["/project"]}.get(objecting or "", ["/project", "/branch"])
    assert [request.path for request in receiver.received] == asked
    errors = {
        "installed": "HOOK_BLOCKED: blocks: not today",
        "project": "HOOK_BLOCKED: project hook 0: the project says no",
        "branch": "HOOK_BLOCKED: branch hook 0: the branch says no",
    }
    assert run["result"][0]["error"] == errors.get(objecting or "")
    assert "first" in {name for name, _ in TOLD[run["id"]]}


async def test_an_address_is_told_what_a_function_is(service: Service, receiver: Receiver) -> None:
    hooks = [
        hook(receiver, "/before", tool="*"),
        hook(receiver, "/after", "TOOL_POST", "*"),
        hook(receiver, "/error", "TOOL_ERROR", "*"),
    ]
    receiver.replies["/after"] = receiver.replies["/error"] = [Reply(500)]
    run = await service.act(await service.branch(hooks=hooks), call("long_text"), strategy="sequential")
    failed = await service.act(await service.branch(hooks=hooks), call("breaks"))
    assert [r["status"] for r in (*run["result"], *failed["result"])] == ["completed", "failed"]
    assert [request.path for request in receiver.received] == ["/before", "/after", "/before", "/error"]
    posted = [json.loads(request.body) for request in receiver.received]
    told = [e.wire() for r in (run, failed) for name, e in TOLD[r["id"]] if name == "last"]
    assert posted == told
    assert posted[1]["result_summary"] == LONG[:200]


async def test_an_address_may_stop_the_chain(service: Service, receiver: Receiver) -> None:
    receiver.replies["/stop"] = [Reply(body=b'{"stop": true}')]
    receiver.replies["/never"] = [Reply(403)]
    branch = await service.branch(hooks=[hook(receiver, "/stop"), hook(receiver, "/never")])
    run = await service.act(branch, call("free", value="on"))
    assert run["result"][0]["output"] == "on"
    assert [request.path for request in receiver.received] == ["/stop"]
