"""Calls that clients carry out: the run holds nothing meanwhile, and goes on with what they bring."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.acting import call, pairs_of, rows_of
from tests.support.clients import Clients, refusal
from tests.support.database import migrated
from tests.support.polling import until_true
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

_numbers = itertools.count()
ADD = call("add", a=1, b=2)
STRATEGIES = pytest.mark.parametrize("strategy", ["concurrent", "sequential"])


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """One service for all; each test has a branch, and a tool where it matters."""
    async with migrated(postgres) as url, running(url) as made:
        await Clients(made.http).tool("door")
        yield made


@pytest.fixture
def clients(service: Service) -> Clients:
    return Clients(service.http)


def key() -> str:
    """A text that no other test uses."""
    return f"client-{next(_numbers)}"


async def test_a_call_waits_for_its_client_and_the_others_do_not(service: Service, clients: Clients) -> None:
    branch = await service.branch()
    run = await clients.waiting(branch, call("door", to="east"), ADD)
    row, added = await rows_of(service, run["id"])
    assert (row["status"], row["ended_at"], added["status"]) == ("pending", None, "completed")
    (work,) = await clients.work(run_id=run["id"])
    assert work["arguments"] == {"to": "east"}
    assert {name: work[name] for name in ("id", "call_id", "arguments_digest", "branch_id")} == {
        name: row[name] for name in ("id", "call_id", "arguments_digest", "branch_id")
    }
    assert (work["status"], work["attempt"], work["leased_until"]) == ("waiting", 1, None)
    answer = await clients.bring(work, output={"open": True}, arguments_digest=row["arguments_digest"])
    assert (answer.status_code, answer.json()["status"]) == (200, "answered")
    ended = await service.ended(run["id"])
    assert [result["output"] for result in ended["result"]] == [{"open": True}, 3]
    row, _ = await rows_of(service, run["id"])
    assert (row["status"], row["execution"]["response"]) == ("completed", {"open": True})
    assert 0 <= row["execution"]["duration"] < 600
    assert [answered["output"] for _, answered in await pairs_of(service, branch)] == [{"open": True}, 3]
    events = await service.events(run["id"])
    of_it = [e for e in events if row["call_id"] in (e["meta"].get("toolCallId"), e["meta"].get("callId"))]
    assert [e["type"] for e in of_it] == ["TOOL_REQUESTED", "TOOL_START", "TOOL_RESULT", "TOOL_COMPLETED"]
    (waiting,) = [e for e in events if e["type"] == "RUN_WAITING"]
    assert waiting["meta"]["reason"] == "client_result"
    assert waiting["seq"] < of_it[2]["seq"]
    assert not await clients.work(run_id=run["id"], status="waiting")


@pytest.mark.parametrize("output", [None, False, 0, "", [], {}, 12345678901234567890123, "x\n\N{SNOWMAN}"])
async def test_any_json_value_is_a_result(service: Service, clients: Clients, output: Any) -> None:
    run = await clients.waiting(await service.branch(), call("door"))
    (work,) = await clients.work(run_id=run["id"])
    answer = await clients.bring(work, output=output)
    assert (answer.status_code, answer.json()["output"]) == (200, output)
    (result,) = (await service.ended(run["id"]))["result"]
    assert (result["output"], result["error"], result["status"]) == (output, None, "completed")


async def test_an_error_is_the_call_s_error(service: Service, clients: Clients) -> None:
    run = await clients.waiting(await service.branch(), call("door"), suppress_errors=False)
    (work,) = await clients.work(run_id=run["id"])
    error = {"type": "JAMMED", "message": "it does not move", "retryable": False}
    assert (await clients.bring(work, error=error)).json()["error"] == error
    ended = await service.ended(run["id"])
    assert (ended["status"], ended["error"]["code"]) == ("failed", "TOOL_FAILED")
    (row,) = await rows_of(service, run["id"])
    assert (row["status"], row["execution"]["retryable"]) == ("failed", False)
    assert row["execution"]["error"] == {"error": "JAMMED", "message": "it does not move"}


async def test_of_a_large_output_the_beginning_is_kept(service: Service, clients: Clients) -> None:
    run = await clients.waiting(await service.branch(), call("door"))
    (work,) = await clients.work(run_id=run["id"])
    whole = "x" * 2_000_000
    for _ in range(2):  # the whole of it is compared
        answer = await clients.bring(work, output=whole)
        assert (answer.status_code, answer.json()["output_truncated"]) == (200, True)
    assert refusal(await clients.bring(work, output=whole + "x")) == (409, "already_answered")
    assert refusal(await clients.bring(work, output=whole * 3)) == (413, "body_too_large")
    (result,) = (await service.ended(run["id"]))["result"]
    assert result["output_truncated"] is True
    assert 1_000_000 < len(result["output"]) < 1_100_000


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"output": 1, "error": {"type": "E", "message": "m"}}, ""),
        ({"error": None}, ""),
        ({"error": {"type": "E"}}, "/error/message"),
        ({"error": {"type": "", "message": "m"}}, "/error/type"),
        ({"error": {"type": "E", "message": "m", "retryable": "yes"}}, "/error/retryable"),
        ({"output": 1, "lease_token": "mine"}, "/lease_token"),
        ({"output": 1, "arguments_digest": "abc"}, "/arguments_digest"),
        ({"output": 1, "result": 2}, "/result"),
    ],
)
async def test_what_is_no_result_is_refused(clients: Clients, body: dict[str, Any], pointer: str) -> None:
    nobody = {"id": "019a0000-0000-7000-8000-000000000006"}
    answer = await clients.bring(nobody, **body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert (await clients.bring(nobody, output=1)).status_code == 404
    assert (await clients.claim(nobody)).status_code == 404
    assert (await clients.claim(nobody, lease_s=0)).status_code == 422


async def test_a_result_for_other_arguments_is_refused(service: Service, clients: Clients) -> None:
    run = await clients.waiting(await service.branch(), call("door"))
    (work,) = await clients.work(run_id=run["id"])
    assert refusal(await clients.bring(work, output=1, arguments_digest="0" * 64)) == (
        409,
        "arguments_differ",
    )
    await clients.brought(work, arguments_digest=work["arguments_digest"])


async def test_in_a_sequence_nothing_goes_before_what_waits(service: Service, clients: Clients) -> None:
    text = key()
    requests = [call("door", n=0), call("note", text=text), call("door", n=1), ADD]
    run = await clients.waiting(await service.branch(), *requests, strategy="sequential")
    assert len(await rows_of(service, run["id"])) == 1
    for n in range(2):
        work = await clients.next_of(run["id"], n)
        assert (text in CALLS) is (n == 1)
        await clients.brought(work, n)
    ended = await service.ended(run["id"])
    assert [result["output"] for result in ended["result"]] == [0, text, 1, 3]


async def test_each_result_is_on_record_when_it_comes(service: Service, clients: Clients) -> None:
    run = await clients.waiting(await service.branch(), *(call("door", n=n) for n in range(3)))
    for n, work in enumerate(await clients.work(run_id=run["id"])):
        await clients.brought(work, n)

        async def recorded(so_far: int = n + 1) -> bool:
            rows = await rows_of(service, run["id"])
            return [row["status"] for row in rows].count("completed") == so_far

        await until_true(recorded)
    assert [r["output"] for r in (await service.ended(run["id"]))["result"]] == [0, 1, 2]


async def test_a_failure_ends_the_request_and_what_still_waits(service: Service, clients: Clients) -> None:
    calls = [call("door", n=n) for n in range(2)]
    run = await clients.waiting(await service.branch(), *calls, suppress_errors=False)
    first, second = await clients.work(run_id=run["id"])
    await clients.bring(first, error={"type": "E", "message": "m"})
    assert (await service.ended(run["id"]))["status"] == "failed"
    assert [work["status"] for work in await clients.work(run_id=run["id"])] == ["answered", "cancelled"]
    answer = await clients.bring(second, output=1)
    assert refusal(answer) == (409, "call_not_waiting")
    assert answer.json()["call_status"] == "cancelled"


@STRATEGIES
async def test_a_run_that_is_cancelled_while_it_waits_has_not_failed(
    service: Service, clients: Clients, strategy: str
) -> None:
    calls = [call("door", n=n) for n in range(2)]
    branch = await service.branch()
    run = await clients.waiting(branch, *calls, strategy=strategy, suppress_errors=False)
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert (await service.ended(run["id"]))["status"] == "cancelled"
    assert {work["status"] for work in await clients.work(run_id=run["id"])} == {"cancelled"}


@STRATEGIES
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_failed_call_is_handed_over_again_if_it_may_be(
    service: Service, clients: Clients, strategy: str, idempotent: bool
) -> None:
    tool = await clients.tool(key(), idempotent=idempotent)
    params = {"retry_attempts": 1}
    run = await clients.waiting(await service.branch(), call(tool), strategy=strategy, call_params=params)
    (first,) = await clients.work(run_id=run["id"])
    await clients.bring(first, error={"type": "BUSY", "message": "later", "retryable": True})
    if idempotent:
        second = await clients.next_of(run["id"], 1)
        assert (second["attempt"], second["call_id"]) == (2, first["call_id"])
        assert second["id"] != first["id"]
        await clients.brought(second)
    (result,) = (await service.ended(run["id"]))["result"]
    assert result["output"] == "done" if idempotent else result["error"] == "BUSY: later"
    rows = await rows_of(service, run["id"])
    assert [row["status"] for row in rows] == (["failed", "completed"] if idempotent else ["failed"])
    assert len(await pairs_of(service, run["branch_id"])) == 1


async def test_a_person_is_asked_before_the_client_is(service: Service, clients: Clients) -> None:
    gate = {"rules": [{"when": "function == 'door'", "effect": "escalate"}]}
    run = await clients.waiting(await service.branch(gate=gate), call("door", n=1), call("door", n=2))
    assert not await clients.work(run_id=run["id"])
    page = await service.get(f"/v1/approvals?run_id={run['id']}&order=asc")
    first, second = (f"/v1/function-calls/{a['function_call_id']}/decision" for a in page["data"])
    await service.http.post(first, json={"decision": "edit", "arguments": {"n": 5}})
    work = await clients.next_of(run["id"], 0)
    assert work["arguments"] == {"n": 5}
    await clients.brought(work, "one")
    await service.http.post(second, json={"decision": "deny"})
    ended = await service.ended(run["id"])
    assert [result["status"] for result in ended["result"]] == ["completed", "skipped"]
    assert ended["result"][0]["output"] == "one"
    assert len(await clients.work(run_id=run["id"])) == 1
    reasons = [e["meta"]["reason"] for e in await service.events(run["id"]) if e["type"] == "RUN_WAITING"]
    assert reasons[0] == "approval"


async def test_what_is_not_allowed_or_does_not_fit_never_reaches_a_client(
    service: Service, clients: Clients
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = await clients.tool(key(), parameters=schema)
    branch = await service.branch(permissions={"mode": "rules", "allow": {tool: ["*"]}})
    run = await service.act(branch, call(tool, n="one"), call("door"))
    assert [result["error"].partition(":")[0] for result in run["result"]] == [
        "INVALID_ARGUMENTS",
        "PERMISSION_DENIED",
    ]
    assert not await clients.work(run_id=run["id"])


async def test_a_model_s_calls_wait_and_the_next_turn_knows_the_result(
    service: Service, clients: Clients
) -> None:
    asked = {"index": 0, "id": "call_1", "name": "door", "arguments": '{"to": "east"}'}
    first = [{"text": "I open it."}, {"tool_call": asked}, {"end": "tool_calls"}]
    model = key()
    streams = [{"attempts": [first]}]
    await service.model(model, provider="scripted", options={"streams": streams})
    branch = await service.branch(chat_model=model)
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "go", "actions": True, "tools": ["door"]}
    )
    assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
    run = answer.json()
    (work,) = await clients.work(branch_id=branch, function="door", status="waiting")
    await clients.brought(work, {"open": "wide"})
    ended = await service.ended(run["id"])
    assert ended["result"]["action_responses"][0]["output"] == {"open": "wide"}
    (row,) = await rows_of(service, run["id"])
    assert row["provider_call_id"] == "call_1"
    results = [e for e in await service.events(run["id"]) if e["type"] == "TOOL_RESULT"]
    assert [e["meta"]["toolCallId"] for e in results] == ["call_1"]
    second = [{"text": "It is open."}, {"end": "stop"}]
    await service.model(model, provider="scripted", options={"streams": [{"attempts": [second]}]})
    again = await service.operate(branch)
    assert again["result"] == "It is open."
    kinds = [message["kind"] for message in await service.messages(branch)]
    assert kinds == [
        *("instruction", "assistant_response", "action_request", "action_response"),
        *("instruction", "assistant_response"),
    ]
