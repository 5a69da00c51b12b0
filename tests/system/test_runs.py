"""Runs over HTTP: the three ways to wait, resuming, cancelling, queueing, history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.service import Frame, Service, running, text_by_offset

pytestmark = pytest.mark.anyio

Script = list[dict[str, Any]]

HELLO: Script = [{"text": "Hello"}, {"text": " world"}, {"end": "stop"}]
SLOW: Script = [{"text": "one "}, {"text": "two "}, {"wait_ms": 60_000}, {"text": "three"}, {"end": "stop"}]
ADD_CALL: Script = [
    {"text": "Adding. "},
    {"tool_call": {"index": 0, "id": "call_1", "name": "add", "arguments": '{"a": 1'}},
    {"tool_call": {"index": 0, "arguments": ', "b": 2}'}},
    {"end": "tool_calls"},
]


def is_gapless(events: list[dict[str, Any]]) -> bool:
    """Whether seq runs from 1 without a gap."""
    return [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_waiting_gives_the_run_at_its_end(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", HELLO))
    answer = await service.http.post(f"/v1/branches/{branch}/operate", json={"instruction": "hi"})
    run = answer.json()
    assert answer.status_code == 200
    assert answer.headers["Run-Id"] == run["id"]
    assert (run["status"], run["result"], run["finish_reason"]) == ("completed", "Hello world", "stop")
    assert run == await service.get(f"/v1/runs/{run['id']}")
    kinds = [(m["kind"], m["content"].get("text")) for m in await service.messages(branch)]
    assert kinds == [("instruction", None), ("assistant_response", "Hello world")]


async def test_the_stream_of_a_post_is_the_stored_log(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", HELLO))
    got = [
        frame
        async for frame in service.stream(
            "POST", f"/v1/branches/{branch}/operate", json={"instruction": "hi"}
        )
    ]
    assert got[-1] == Frame(None, "stream.end", {})
    live = [frame.data for frame in got[:-1]]
    run_id = live[0]["run_id"]
    assert is_gapless(live)
    assert [frame.id for frame in got[:-1]] == [f"{run_id}:{event['seq']}" for event in live]
    assert text_by_offset(live) == "Hello world"
    assert live[-1]["meta"]["result"] == "Hello world"
    assert await service.events(run_id) == live
    assert await service.events(run_id, limit=1) == live


async def test_every_cut_of_a_stream_resumes_exactly(service: Service) -> None:
    words: Script = [{"text": f"w{i} "} for i in range(40)]
    branch = await service.branch(chat_model=await service.scripted("m", [*words, {"end": "stop"}]))
    run = await service.operate(branch)
    events = await service.events(run["id"])
    for cut in range(len(events)):
        cursors: list[Mapping[str, str]] = [{"Last-Event-ID": f"{run['id']}:{cut}"}]
        if cut % 10 == 0:
            cursors.append({"Last-Event-ID": str(cut)})
        for headers in cursors:
            path = f"/v1/runs/{run['id']}/events"
            tail = [f.data async for f in service.stream("GET", path, headers=headers)]
            assert tail[:-1] == events[cut:]
    answer = await service.http.get(
        f"/v1/runs/{run['id']}/events?after={len(events)}", headers={"Accept": "text/event-stream"}
    )
    assert answer.status_code == 204


async def test_following_a_run_from_its_middle_while_it_runs(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", SLOW))
    run = await service.started(branch)
    path = f"/v1/runs/{run['id']}/events"
    seen: list[dict[str, Any]] = []
    async for frame in service.stream("GET", path):
        seen.append(frame.data)
        if frame.event == "TOKEN" and frame.data["meta"]["text"] == "two ":
            break
    rest = service.stream("GET", path, headers={"Last-Event-ID": f"{run['id']}:{seen[-1]['seq']}"})
    cancelled = asyncio.create_task(service.http.post(f"/v1/runs/{run['id']}/cancel"))
    seen += [frame.data async for frame in rest if frame.event != "stream.end"]
    assert (await cancelled).json()["status"] == "cancelled"
    assert await service.events(run["id"]) == seen
    assert is_gapless(seen)


async def test_a_cancelled_run_says_so_and_adds_nothing_to_the_conversation(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", SLOW))
    run = await service.started(branch)
    async for frame in service.stream("GET", f"/v1/runs/{run['id']}/events"):
        if frame.event == "TOKEN":
            break
    answer = await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert answer.status_code == 200
    ended = answer.json()
    assert (ended["status"], ended["error"]["code"]) == ("cancelled", "STREAM_ABORTED")
    assert ended["partial_text"].startswith("one ")
    assert await service.messages(branch) == []
    again = await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "run_already_ended")


async def test_runs_on_one_branch_queue_in_order(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", HELLO))
    slow = await service.started(branch, chat_model=await service.scripted("slow", SLOW))
    waiting = [await service.started(branch, instruction=f"number {i}") for i in range(4)]
    assert [run["status"] for run in waiting] == ["queued"] * 4
    rejected = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "now", "if_busy": "reject"}
    )
    assert (rejected.status_code, rejected.json()["code"]) == (409, "branch_busy")
    gone = await service.http.post(f"/v1/runs/{waiting[2]['id']}/cancel")
    assert gone.json()["status"] == "cancelled"
    await service.http.post(f"/v1/runs/{slow['id']}/cancel")
    ended = [await service.ended(run["id"]) for run in waiting]
    assert [run["status"] for run in ended] == ["completed", "completed", "cancelled", "completed"]
    said = [m["content"]["instruction"] for m in await service.messages(branch) if m["kind"] == "instruction"]
    assert said == ["number 0", "number 1", "number 3"]
    types = [event["type"] for event in await service.events(waiting[0]["id"])]
    assert types[:3] == ["RUN_QUEUED", "RUN_STARTED", "SESSION_START"]


async def test_many_clients_on_one_branch_leave_a_serial_conversation(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", ADD_CALL))
    runs = await asyncio.gather(
        *(service.operate(branch, instruction=str(i), actions=True) for i in range(20))
    )
    assert {run["status"] for run in runs} == {"completed"}
    kinds = [message["kind"] for message in await service.messages(branch)]
    turn = ["instruction", "assistant_response", "action_request", "action_response"]
    assert kinds == turn * 20


async def test_an_operate_with_a_tool_leaves_a_linked_pair_and_a_call(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", ADD_CALL))
    run = await service.operate(branch, actions=True)
    responses = run["result"]["action_responses"]
    assert [(r["function"], r["output"], r["error"]) for r in responses] == [("add", 3, None)]
    request, response = [m for m in await service.messages(branch) if m["kind"].startswith("action")]
    assert request["content"]["action_response_id"] == response["id"]
    assert response["content"]["action_request_id"] == request["id"]
    assert response["content"]["output"] == 3
    (call,) = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    assert call["id"] == run["function_calls"][0]
    assert call == await service.get(f"/v1/function-calls/{call['id']}")
    assert (call["status"], call["execution"]["response"]) == ("completed", 3)
    assert (call["action_request_id"], call["action_response_id"]) == (request["id"], response["id"])
    types = [e["type"] for e in await service.events(run["id"]) if e["type"].startswith("TOOL")]
    assert types == ["TOOL_REQUESTED", "TOOL_START", "TOOL_RESULT", "TOOL_COMPLETED"]


async def test_without_actions_a_tool_call_is_announced_and_runs_nothing(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", ADD_CALL))
    run = await service.operate(branch)
    assert (run["status"], run["result"]) == ("completed", "Adding. ")
    assert run["function_calls"] == []
    assert [m["kind"] for m in await service.messages(branch)] == ["instruction", "assistant_response"]


@pytest.mark.parametrize("strategy", ["concurrent", "sequential"])
async def test_every_end_of_a_call_is_told_apart(service: Service, strategy: str) -> None:
    branch = await service.branch()
    requests: Script = [
        {"function": "add", "arguments": {"a": 1, "b": 2}},
        {"function": "nothing", "arguments": {}},
        {"function": "echo", "arguments": {"value": False}},
        {"function": "refuse", "arguments": {"why": "never"}},
        {"function": "unknown", "arguments": {}},
        {"function": "add", "arguments": {"a": "x", "b": 2}},
        {"function": "add", "arguments": [1, 2]},
        {"function": "nothing", "arguments": None},
    ]
    run = await service.act(branch, *requests, strategy=strategy)
    result = run["result"]
    assert [r["function"] for r in result] == [q["function"] for q in requests]
    assert [r["output"] for r in result[:3]] == [3, None, False]
    assert [r["error"] is None for r in result] == [True, True, True, False, False, False, False, True]
    assert result[3]["error"] == "ValueError: never"
    assert [r["error"].partition(":")[0] for r in result[4:7]] == [
        "TOOL_NOT_FOUND",
        "INVALID_ARGUMENTS",
        "INVALID_ARGUMENTS",
    ]
    assert result[3]["output"] == {
        "error": "ValueError: never",
        "function": "refuse",
        "arguments": {"why": "never"},
    }
    messages = await service.messages(branch)
    asked = [m for m in messages if m["kind"] == "action_request"]
    by_id = {m["id"]: m for m in messages}
    assert [m["content"]["function"] for m in asked] == [q["function"] for q in requests]
    for message in asked:
        response = by_id[message["content"]["action_response_id"]]
        assert response["content"]["action_request_id"] == message["id"]
    calls = (await service.get(f"/v1/branches/{branch}/function-calls?order=asc"))["data"]
    assert [c["status"] for c in sorted(calls, key=lambda c: c["index"])] == [
        *["completed"] * 3,
        *["failed"] * 4,
        "completed",
    ]


async def test_cancelling_ends_tools_and_records_them(service: Service) -> None:
    branch = await service.branch()
    body = {"requests": [{"function": "forever", "arguments": {}}, {"function": "nothing", "arguments": {}}]}
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", json=body, headers={"Prefer": "respond-async"}
    )
    run = answer.json()
    async for frame in service.stream("GET", f"/v1/runs/{run['id']}/events"):
        if frame.event == "TOOL_COMPLETED":
            break
    cancelled = (await service.http.post(f"/v1/runs/{run['id']}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    calls = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    assert sorted(call["status"] for call in calls) == ["cancelled", "completed"]
    kinds = [m["kind"] for m in await service.messages(branch)]
    assert kinds.count("action_request") == kinds.count("action_response") == 2


async def test_unsuppressed_failures_are_problems_that_name_the_run(service: Service) -> None:
    branch = await service.branch(
        chat_model=await service.scripted("down", [{"error": {"kind": "status", "status": 401}}])
    )
    failed = await service.http.post(
        f"/v1/branches/{branch}/act",
        json={"requests": {"function": "refuse", "arguments": {}}, "suppress_errors": False},
    )
    assert (failed.status_code, failed.json()["code"]) == (424, "tool_failed")
    assert (await service.get(f"/v1/runs/{failed.json()['run_id']}"))["status"] == "failed"
    upstream = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "x", "suppress_errors": False}
    )
    assert (upstream.status_code, upstream.json()["error"]["code"]) == (502, "PROVIDER_ERROR")


async def test_an_answer_is_validated_before_any_tool_runs_from_it(service: Service) -> None:
    call = '{"function": "note", "arguments": {"text": "ran"}}'
    good = f'{{"answer": 42, "action_required": true, "action_requests": [{call}]}}'
    bad = good.replace("42", '"many"')
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    await service.scripted("good", [{"text": good}, {"end": "stop"}])
    await service.scripted("bad", [{"text": bad}, {"end": "stop"}])
    branch = await service.branch()
    asked = {"response_format": schema, "actions": True, "tools": ["note"]}
    run = await service.operate(branch, chat_model="good", **asked)
    assert run["validation"] == {"ok": True, "kind": None, "errors": [], "corrections": []}
    assert run["result"]["answer"] == 42
    assert run["result"]["action_responses"][0]["output"] == "ran"
    for policy, result in (("return_value", "many"), ("return_none", None)):
        run = await service.operate(branch, chat_model="bad", handle_validation=policy, **asked)
        assert run["function_calls"] == []
        assert (run["validation"]["ok"], run["validation"]["kind"]) == (False, "schema")
        assert (run["result"] or {}).get("answer") == result
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate",
        json={"instruction": "x", "chat_model": "bad", "handle_validation": "raise", **asked},
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "result_mismatch")


async def test_an_idempotency_key_makes_one_run(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", HELLO))
    path, headers = f"/v1/branches/{branch}/operate", {"Idempotency-Key": "order-1"}
    answers = await asyncio.gather(
        *(service.http.post(path, json={"instruction": "hi"}, headers=headers) for _ in range(8))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["id"] for answer in answers}) == 1
    replayed = [answer for answer in answers if answer.headers.get("Idempotency-Replayed") == "true"]
    assert len(replayed) == 7
    other = await service.http.post(path, json={"instruction": "another"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    streamed = [f async for f in service.stream("POST", path, json={"instruction": "hi"}, headers=headers)]
    assert [f.data for f in streamed[:-1]] == await service.events(answers[0].json()["id"])


async def test_if_match_guards_against_a_changed_branch(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", HELLO))
    tag = (await service.http.get(f"/v1/branches/{branch}")).headers["ETag"]
    path = f"/v1/branches/{branch}/operate"
    fine = await service.http.post(path, json={"instruction": "x"}, headers={"If-Match": tag})
    assert fine.status_code == 200
    await service.http.patch(f"/v1/branches/{branch}", json={"name": "other"})
    late = await service.http.post(path, json={"instruction": "x"}, headers={"If-Match": tag})
    assert (late.status_code, late.json()["code"]) == (412, "precondition_failed")


async def test_waiting_for_less_than_the_run_takes_answers_202_and_the_run_goes_on(service: Service) -> None:
    pause: Script = [{"text": "a"}, {"wait_ms": 1_500}, {"text": "b"}, {"end": "stop"}]
    branch = await service.branch(chat_model=await service.scripted("m", pause))
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "x"}, headers={"Prefer": "wait=1"}
    )
    assert answer.status_code == 202
    assert answer.headers["Preference-Applied"] == "wait=1"
    run = await service.ended(answer.headers["Location"].rpartition("/")[2])
    assert (run["status"], run["result"]) == ("completed", "ab")


@pytest.mark.parametrize(
    ("cursor", "status", "code"),
    [
        ("9999", 400, "invalid_cursor"),
        ("nonsense", 400, "invalid_cursor"),
        ("-1", 400, "invalid_cursor"),
        ("00000000-0000-7000-8000-000000000000:1", 409, "conflict"),
    ],
)
async def test_a_cursor_that_cannot_be_followed(
    service: Service, cursor: str, status: int, code: str
) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", HELLO))
    run = await service.operate(branch)
    for accept in ("application/json", "text/event-stream"):
        answer = await service.http.get(
            f"/v1/runs/{run['id']}/events?after={cursor}", headers={"Accept": accept}
        )
        assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_events_can_be_filtered_by_type(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", HELLO))
    run = await service.operate(branch)
    events = await service.events(run["id"])
    tokens = [event for event in events if event["type"] in ("TOKEN", "COMPLETE")]
    path = f"/v1/runs/{run['id']}/events?types=TOKEN,COMPLETE"
    assert (await service.get(path))["data"] == tokens
    assert [f.data async for f in service.stream("GET", path)][:-1] == tokens
    unknown = await service.http.get(f"/v1/runs/{run['id']}/events?types=NOPE")
    assert (unknown.status_code, unknown.json()["code"]) == (422, "invalid_request")


async def test_a_client_that_leaves_before_the_first_byte_leaves_nothing_behind(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("m", SLOW))
    run = await service.started(branch)
    feeds = service.made.app.state.running.runs._feeds
    for _ in range(5):
        task = asyncio.create_task(
            service.http.get(f"/v1/runs/{run['id']}/events", headers={"Accept": "text/event-stream"})
        )
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await until(lambda: feeds.get(next(iter(feeds._feeds))).watchers == 0)
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    await until(lambda: len(feeds) == 0)


async def test_a_silent_stream_beats_its_heart(database_url: str) -> None:
    async with running(database_url, heartbeat_s=0.05) as service:
        branch = await service.branch(chat_model=await service.scripted("m", SLOW))
        run = await service.started(branch)
        async with service.http.stream(
            "GET", f"/v1/runs/{run['id']}/events", headers={"Accept": "text/event-stream"}
        ) as answer:
            lines = answer.aiter_lines()
            first = await anext(lines)
            assert first == "retry: 2000"
            assert [line async for line in _until_heartbeat(lines)][-1] == ": hb"
        await service.http.post(f"/v1/runs/{run['id']}/cancel")


async def _until_heartbeat(lines: Any) -> Any:
    async for line in lines:
        yield line
        if line == ": hb":
            return


async def test_the_history_of_a_branch_shapes_its_next_prompt(service: Service) -> None:
    """A result, a null and an error of one turn all reach the model in the next."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        body = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        return b"data: " + orjson.dumps(body) + b"\n\n"

    def call(index: int, name: str, arguments: str) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}

    calls = [
        chunk(call(0, "add", '{"a": 2, "b": 3}')),
        chunk(call(1, "nothing", "{}")),
        chunk(call(2, "refuse", '{"why": "closed"}')),
        chunk({}, "tool_calls"),
        b"data: [DONE]\n\n",
    ]
    plain = [chunk({"content": "done"}), chunk({}, "stop"), b"data: [DONE]\n\n"]
    async with ModelServer({"m": [Attempt(chunks=calls), Attempt(chunks=plain)]}) as server:
        await service.model("m", provider="openai", base_url=server.base_url)
        branch = await service.branch(chat_model="m", system="Be brief.")
        await service.operate(branch, instruction="first", actions=True)
        await service.operate(branch, instruction="second", actions=True)
        prompt = server.requests[1].body["messages"]
    roles = [message["role"] for message in prompt]
    assert roles == ["system", "user", "assistant", "tool", "tool", "tool", "user"]
    told = [message["content"] for message in prompt if message["role"] == "tool"]
    assert told[0] == "5"
    assert told[1] == "null"
    assert "closed" in told[2]
    assert prompt[-1]["content"] == "second"


async def test_figures_about_runs(database_url: str) -> None:
    async with running(database_url) as service:
        branch = await service.branch(chat_model=await service.scripted("m", HELLO))
        await service.operate(branch)
        shown = (await service.http.get("/metrics")).text
    assert "branchline_runs_ended_total 1.0" in shown
    assert "branchline_runs_active 0.0" in shown
    assert 'route="/v1/branches/{branch_id}/operate",status="200"' in shown
