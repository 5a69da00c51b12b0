"""Calls that wait for a person: the run holds nothing meanwhile, and goes on from what is stored."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tests.support.polling import until_true
from tests.support.service import Service
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

_numbers = itertools.count()
ESCALATE = {"rules": [{"when": "function == 'note'", "effect": "escalate", "reason": "look at it"}]}


def key() -> str:
    """A text that no other test uses."""
    return f"approval-{next(_numbers)}"


async def waiting(service: Service, *requests: Any, **body: Any) -> dict[str, Any]:
    """A run of act that has come to wait."""
    branch = await service.branch(gate=ESCALATE)
    answer = await service.http.post(f"/v1/branches/{branch}/act", json={"requests": list(requests), **body})
    assert answer.status_code == 202, answer.text
    run: dict[str, Any] = answer.json()
    assert run["status"] == "waiting"
    return run


async def asked(service: Service, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The approvals of a run, the oldest first."""
    page: dict[str, Any] = await service.get(f"/v1/approvals?run_id={run['id']}&order=asc")
    return list(page["data"])


async def decide(service: Service, approval: dict[str, Any], decision: str, **more: Any) -> Any:
    return await service.http.post(
        f"/v1/function-calls/{approval['function_call_id']}/decision", json={"decision": decision, **more}
    )


async def rows_of(service: Service, run: dict[str, Any]) -> list[dict[str, Any]]:
    rows = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    return sorted(rows, key=lambda row: (row["index"], row["attempt"]))


def note(text: str) -> dict[str, Any]:
    return {"function": "note", "arguments": {"text": text}}


ADD = {"function": "add", "arguments": {"a": 1, "b": 2}}


async def test_an_approved_call_runs_and_the_others_did_not_wait(service: Service) -> None:
    text = key()
    run = await waiting(service, note(text), ADD)
    pending, added = await rows_of(service, run)
    assert (pending["status"], pending["ended_at"], added["status"]) == ("pending", None, "completed")
    assert pending["gate"]["effect"] == "escalate"
    (approval,) = await asked(service, run)
    assert (approval["status"], approval["reason"], approval["arguments"]) == (
        "pending",
        "look at it",
        {"text": text},
    )
    assert approval["arguments_digest"] == pending["arguments_digest"]
    assert text not in CALLS
    answer = await decide(service, approval, "approve", reason="fine")
    assert (answer.status_code, answer.json()["status"]) == (200, "approved")
    ended = await service.ended(run["id"])
    assert [r["output"] for r in ended["result"]] == [text, 3]
    assert CALLS.count(text) == 1
    assert ended["function_calls"] == [row["id"] for row in await rows_of(service, ended)]
    types = [event["type"] for event in await service.events(run["id"])]
    wanted = [
        *("APPROVAL_REQUESTED", "RUN_WAITING", "APPROVAL_DECIDED"),
        *("TOOL_START", "TOOL_RESULT", "TOOL_COMPLETED", "RUN_COMPLETED"),
    ]
    assert [kind for kind in types[types.index("RUN_WAITING") :] if kind in wanted] == wanted[1:]
    assert types.count("TOOL_REQUESTED") == 2
    requests = [m for m in await service.messages(ended["branch_id"]) if m["kind"] == "action_request"]
    assert all(message["content"]["action_response_id"] for message in requests)


async def test_a_denied_call_is_a_value_with_the_reason(service: Service) -> None:
    text = key()
    run = await waiting(service, note(text), suppress_errors=False)
    (approval,) = await asked(service, run)
    await decide(service, approval, "deny", reason="not today")
    ended = await service.ended(run["id"])
    assert ended["status"] == "completed"
    (result,) = ended["result"]
    assert (result["status"], result["error"]) == ("skipped", "APPROVAL_DENIED: not today")
    assert text not in CALLS


async def test_an_edited_call_runs_with_the_other_arguments(service: Service) -> None:
    text, other = key(), key()
    run = await waiting(service, note(text))
    (approval,) = await asked(service, run)
    refused = await decide(service, approval, "edit", arguments={"text": 5})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/arguments/text"
    assert (await decide(service, approval, "edit", arguments={"text": other})).status_code == 200
    ended = await service.ended(run["id"])
    assert ended["result"][0]["output"] == other
    assert (text in CALLS, other in CALLS) == (False, True)
    (row,) = await rows_of(service, run)
    assert row["arguments"] == {"text": other}
    (decided,) = [e for e in await service.events(run["id"]) if e["type"] == "APPROVAL_DECIDED"]
    assert decided["meta"]["decision"] == "edit"
    assert decided["meta"]["argumentsDigest"] == row["arguments_digest"] != approval["arguments_digest"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"decision": "maybe"}, "/decision"),
        ({"decision": "edit"}, ""),
        ({"decision": "approve", "arguments": {}}, ""),
        ({"decision": "approve", "why": "x"}, "/why"),
        ({}, "/decision"),
    ],
)
async def test_what_is_no_decision_is_refused(service: Service, body: dict[str, Any], pointer: str) -> None:
    run = await waiting(service, note(key()))
    (approval,) = await asked(service, run)
    path = f"/v1/function-calls/{approval['function_call_id']}/decision"
    answer = await service.http.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    await service.http.post(f"/v1/runs/{run['id']}/cancel")


async def test_of_two_who_decide_at_once_one_wins(service: Service) -> None:
    text = key()
    run = await waiting(service, note(text))
    (approval,) = await asked(service, run)
    answers = await asyncio.gather(*(decide(service, approval, verb) for verb in ("approve", "deny") * 4))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [200, *[409] * 7]
    assert {a.json()["code"] for a in answers if a.status_code == 409} == {"already_decided"}
    won = next(answer.json()["status"] for answer in answers if answer.status_code == 200)
    ended = await service.ended(run["id"])
    assert (ended["result"][0]["status"] == "completed") is (won == "approved")
    assert CALLS.count(text) == (won == "approved")


async def test_a_run_waits_again_for_what_is_not_decided_yet(service: Service) -> None:
    texts = [key(), key()]
    run = await waiting(service, *map(note, texts))
    first, second = await asked(service, run)
    await decide(service, second, "approve")

    async def one_ran() -> bool:
        return texts[1] in CALLS and (await service.get(f"/v1/runs/{run['id']}"))["status"] == "waiting"

    await until_true(one_ran)
    assert texts[0] not in CALLS
    await decide(service, first, "approve")
    ended = await service.ended(run["id"])
    assert [r["output"] for r in ended["result"]] == texts
    assert [CALLS.count(text) for text in texts] == [1, 1]


async def test_in_a_sequence_nothing_goes_before_what_waits(service: Service) -> None:
    texts = [key(), key()]
    run = await waiting(service, ADD, note(texts[0]), note(texts[1]), ADD, strategy="sequential")
    assert [row["status"] for row in await rows_of(service, run)] == ["completed", "pending"]
    for _ in range(2):
        (approval,) = [a for a in await asked(service, run) if a["status"] == "pending"]
        await decide(service, approval, "approve")

        async def next_is_asked(after: str = approval["id"]) -> bool:
            now = await service.get(f"/v1/runs/{run['id']}")
            found = [a for a in await asked(service, run) if a["status"] == "pending"]
            return now["status"] == "completed" or bool(found and found[0]["id"] != after)

        await until_true(next_is_asked)
    ended = await service.ended(run["id"])
    assert [r["output"] for r in ended["result"]] == [3, *texts, 3]


async def test_cancelling_a_run_that_waits_ends_its_calls(service: Service) -> None:
    run = await waiting(service, note(key()), ADD)
    (approval,) = await asked(service, run)
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    ended = await service.ended(run["id"])
    assert ended["status"] == "cancelled"
    assert [row["status"] for row in await rows_of(service, run)] == ["cancelled", "completed"]
    assert [a["status"] for a in await asked(service, run)] == ["cancelled"]
    assert (await decide(service, approval, "approve")).status_code == 409
    messages = await service.messages(ended["branch_id"])
    assert [m["kind"] for m in messages].count("action_response") == 2


async def test_a_model_s_calls_wait_and_its_answer_is_kept(service: Service) -> None:
    text = key()
    call = {"index": 0, "id": "call_1", "name": "note", "arguments": f'{{"text": "{text}"}}'}
    usage = {"usage": {"input_tokens": 7, "output_tokens": 3}}
    script: list[dict[str, Any]] = [{"text": "I note it."}, {"tool_call": call}, usage, {"end": "tool_calls"}]
    branch = await service.branch(chat_model=await service.scripted(key(), script), gate=ESCALATE)
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "go", "actions": True, "tools": ["note"]}
    )
    assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
    run = answer.json()
    busy = await service.http.post(
        f"/v1/branches/{branch}/act", json={"requests": [ADD], "if_busy": "reject"}
    )
    assert (busy.status_code, busy.json()["code"]) == (409, "branch_busy")
    (approval,) = await asked(service, run)
    await decide(service, approval, "approve")
    ended = await service.ended(run["id"])
    assert ended["result"]["action_responses"][0]["output"] == text
    assert (ended["usage"]["input_tokens"], ended["attempts"]) == (7, 1)
    events = await service.events(run["id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_a_response_format_survives_the_waiting(service: Service) -> None:
    text = key()
    request = f'{{"function": "note", "arguments": {{"text": "{text}"}}}}'
    said = f'{{"answer": 42, "action_required": true, "action_requests": [{request}]}}'
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    model = await service.scripted(key(), [{"text": said}, {"end": "stop"}])
    branch = await service.branch(chat_model=model, gate=ESCALATE)
    body = {"instruction": "go", "actions": True, "tools": ["note"], "response_format": schema}
    run = (await service.http.post(f"/v1/branches/{branch}/operate", json=body)).json()
    (approval,) = await asked(service, run)
    await decide(service, approval, "approve")
    ended = await service.ended(run["id"])
    assert ended["result"]["answer"] == 42
    assert ended["result"]["action_responses"][0]["output"] == text
    assert ended["validation"]["ok"] is True


async def test_who_follows_a_run_hears_of_everything_while_it_waits(service: Service) -> None:
    run = await waiting(service, note(key()))
    heard: list[str] = []

    async def follow() -> None:
        path = f"/v1/runs/{run['id']}/events"
        async for frame in service.stream("GET", path):
            heard.extend([str(frame.event)])

    following = asyncio.create_task(follow())
    await until_true(lambda: asyncio.sleep(0, "RUN_WAITING" in heard))
    (approval,) = await asked(service, run)
    await decide(service, approval, "approve")
    await asyncio.wait_for(following, 10)
    types = [event["type"] for event in await service.events(run["id"])]
    assert heard == [*types, "stream.end"]


@pytest.mark.parametrize("decision", ["approve", "edit"])
async def test_what_is_denied_by_now_is_not_done_though_a_person_allows_it(
    service: Service, decision: str
) -> None:
    text = key()
    run = await waiting(service, note(text))
    (approval,) = await asked(service, run)
    gate = {"rules": [{"when": "function == 'note'", "effect": "deny", "reason": "not any more"}]}
    changed = await service.http.patch(f"/v1/branches/{run['branch_id']}", json={"gate": gate})
    assert changed.status_code == 200
    more = {"arguments": {"text": text + "!"}} if decision == "edit" else {}
    assert (await decide(service, approval, decision, **more)).status_code == 200
    ended = await service.ended(run["id"])
    assert ended["result"][0]["output"] == {"error": "denied by governance gate", "function": "note"}
    assert (text in CALLS, text + "!" in CALLS) == (False, False)
