"""Arguments from the field that broke other services: through a model's answer, and through a request."""

from __future__ import annotations

import hashlib
import json
from itertools import count
from typing import Any

import pytest

from tests.support import cases, chat_wire
from tests.support.acting import call, rows_of, types_of
from tests.support.heard import served
from tests.support.http_tools import gives
from tests.support.model_server import Attempt, ModelServer
from tests.support.receiver import Receiver, Reply
from tests.support.service import Service

pytestmark = pytest.mark.anyio

CASES = cases.load("5-tool-arguments")

_numbers = count(1)


def calling(arguments: str, *, id: str = "c", index: int = 0, name: str = "echo") -> bytes:
    """An event with one tool call, its arguments as they are written."""
    function = {"name": name, "arguments": arguments}
    return chat_wire.delta(
        {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}
    )


def answer(*calls: bytes) -> Attempt:
    return Attempt([*calls, chat_wire.delta({}, "tool_calls"), chat_wire.DONE])


async def echoed(service: Service, server: ModelServer, value: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What becomes of a value that a model has echoed: the response, and the function call."""
    after = Attempt(chat_wire.text("ok"))
    model = await served(service, server, [answer(calling(f'{{"value": {value}}}')), after])
    branch = await service.branch(chat_model=model)
    run = await service.operate(branch, actions=True)
    (response,) = run["result"]["action_responses"]
    (call,) = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    # The branch goes on, and its history makes a prompt.
    assert (await service.operate(branch, actions=True))["result"] == "ok"
    return response, call


async def requested(service: Service, call: dict[str, Any]) -> dict[str, Any]:
    """What was told of the proposal of a call whose tool ran once."""
    events = await service.events(call["run_id"])
    assert [event["type"] for event in events].count("TOOL_START") == 1
    (told,) = [event["meta"] for event in events if event["type"] == "TOOL_REQUESTED"]
    return dict(told)


async def over_http(service: Service, server: ModelServer, answer: Attempt) -> str:
    """A tool that a server carries out; its name."""
    name = f"posted_{next(_numbers)}"
    server.scripts[""] = [answer]
    spec = {"kind": "http", "parameters": {"type": "object"}, "http": {"url": server.base_url}}
    assert (await service.http.put(f"/v1/tools/{name}", json=spec)).status_code == 201
    return name


async def raw_act(service: Service, body: bytes) -> Any:
    branch = await service.branch()
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", content=body, headers={"Content-Type": "application/json"}
    )
    return answer, (await service.get(f"/v1/branches/{branch}/runs"))["data"]


async def runs_nothing(service: Service, model: str) -> None:
    """The run fails, and no tool runs from it."""
    branch = await service.branch(chat_model=model)
    run = await service.operate(branch, actions=True, lifecycle={"retry": None})
    events = await service.events(run["id"])
    assert "TOOL_START" not in [event["type"] for event in events]
    calls = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    assert (run["error"]["code"], calls) == ("INVALID_TOOL_ARGUMENTS", [])


async def test_t01_nul_is_replaced_in_a_models_arguments_and_refused_in_a_request(
    service: Service, model_server: ModelServer
) -> None:
    (request,) = CASES["T01"]["input"]["act"]
    response, call = await echoed(service, model_server, json.dumps(request["arguments"]))
    assert (response["error"], call["status"]) == (None, "completed")
    stored = {"s": "a\ufffdb", "k\ufffdey": 1, "nested": [{"x": "\ufffd"}]}
    assert (response["output"], call["arguments"]) == (stored, {"value": stored})
    assert (await requested(service, call))["replaced"] == 3
    told, runs = await raw_act(service, json.dumps({"requests": [request]}).encode())
    assert (told.status_code, runs) == (400, [])


async def test_t03_halves_of_characters(service: Service, model_server: ModelServer) -> None:
    raw = CASES["T03"]["input"]["raw_body"]
    arguments = raw.split('"arguments":', 1)[1][:-1]
    response, call = await echoed(service, model_server, arguments)
    assert response["output"] == {"s": "\ufffd!", "t": "\ufffd\ufffd", "ok": "😀"}
    assert (await requested(service, call))["replaced"] == 3
    _, whole = await echoed(service, model_server, '"😀"')
    assert "replaced" not in await requested(service, whole)
    told, runs = await raw_act(service, f'{{"requests": {raw}}}'.encode())
    assert (told.status_code, runs) == (400, [])


async def test_t04_long_integers_keep_their_digits(service: Service, model_server: ModelServer) -> None:
    text = CASES["T04"]["input"]["model_arguments_text"]
    response, call = await echoed(service, model_server, text)
    assert response["output"] == json.loads(text)
    assert call["arguments"]["value"] == json.loads(text)
    replayed = model_server.requests[-1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(replayed)["value"] == json.loads(text)
    async with ModelServer() as server:
        name = await over_http(service, server, gives(b"1"))
        model = await served(service, model_server, [answer(calling(text, name=name))])
        await service.operate(await service.branch(chat_model=model), actions=True)
        assert server.requests[0].body["arguments"] == json.loads(text)


async def test_t06_depth_is_an_error_and_not_a_crash(service: Service, model_server: ModelServer) -> None:
    raw = eval(CASES["T06"]["input"]["raw_body_py"], {"__builtins__": {}})
    told, runs = await raw_act(service, f'{{"requests": {raw}}}'.encode())
    assert (told.status_code, runs) == (422, [])
    arguments = raw.split('"arguments":', 1)[1][:-1]
    model = await served(service, model_server, [answer(calling(arguments))])
    await runs_nothing(service, model)
    async with ModelServer() as server:
        name = await over_http(service, server, gives(b"[" * 100_000 + b"]" * 100_000))
        run = await service.act(await service.branch(), call(name))
        assert (run["result"][0]["status"], run["result"][0]["output"]["error"][:16]) == (
            "failed",
            "INVALID_RESPONSE",
        )
    assert (await service.get("/healthz"))["status"] == "ok"


async def test_t08_two_keys_alike_are_refused(service: Service, model_server: ModelServer) -> None:
    raw = CASES["T08"]["input"]["raw_body"]
    told, runs = await raw_act(service, f'{{"requests": {raw}}}'.encode())
    assert (told.status_code, runs) == (400, [])
    arguments = raw.split('"arguments":', 1)[1][:-1]
    model = await served(service, model_server, [answer(calling(arguments))])
    await runs_nothing(service, model)


async def test_t11_arguments_that_are_no_object_reach_no_tool(service: Service) -> None:
    requests = [{**request, "function": "nothing"} for request in CASES["T11"]["input"]["act"]]
    requests.append({"function": "nothing", "arguments": ""})
    text = json.dumps({"value": None, "action_required": True, "action_requests": requests})
    steps = [{"text": text}, {"end": "stop"}]
    options = {"native_tools": False, "streams": [{"attempts": [steps]}]}
    await service.model("t11", provider="scripted", options=options)
    async with Receiver() as receiver:
        receiver.replies["/gate"] = [Reply(body=b'{"effect": "allow"}')]
        gate = {"http": {"url": receiver.url("/gate")}}
        branch = await service.branch(chat_model="t11", gate=gate)
        asked = await service.operate(branch, actions=True)
        acted = await service.act(branch, *requests)
        assert len(receiver.received) == 2 * 2
    for run, results in (asked, asked["result"]["action_responses"]), (acted, acted["result"]):
        errors = [(result["error"] or "").split(":")[0] for result in results]
        assert errors == ["INVALID_ARGUMENTS"] * 3 + ["", ""]
        assert (await types_of(service, run["id"])).count("TOOL_START") == 2
        rows = await rows_of(service, run["id"])
        assert [row["status"] for row in rows] == ["failed"] * 3 + ["completed"] * 2


async def test_t13_ids_that_a_provider_uses_again(service: Service, model_server: ModelServer) -> None:
    turns = CASES["T13"]["input"]["turns"]
    names = {"a": "one", "b": "two", "c": "three"}
    attempts = [
        answer(
            *(
                calling(json.dumps({"value": names[call["name"]]}), id=call["id"], index=index)
                for index, call in enumerate(turn)
            )
        )
        for turn in turns
    ]
    model = await served(service, model_server, [*attempts, Attempt(chat_wire.text("ok"))])
    branch = await service.branch(chat_model=model)
    outputs = []
    for _ in turns:
        run = await service.operate(branch, actions=True)
        outputs.append([response["output"] for response in run["result"]["action_responses"]])
    assert outputs == [["one"], ["two", "three"]]
    calls = (await service.get(f"/v1/branches/{branch}/function-calls"))["data"]
    assert len({call["call_id"] for call in calls}) == 3
    assert [call["provider_call_id"] for call in calls] == ["call_1"] * 3
    assert (await service.operate(branch, actions=True))["result"] == "ok"
    messages = model_server.requests[-1].body["messages"]
    made = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    told = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    assert [told[id] for id in made] == ["one", "two", "three"]


async def test_t14_a_digest_is_of_the_canonical_form(service: Service, model_server: ModelServer) -> None:
    text = CASES["T14"]["input"]["arguments_text"]
    response, call = await echoed(service, model_server, text)
    again, same = await echoed(service, model_server, '{"c": 1.1, "a": 100.0, "bb": 1}')
    assert response["output"] == again["output"] == json.loads(text)
    assert call["arguments_digest"] == same["arguments_digest"]
    canonical = json.dumps({"value": json.loads(text)}, sort_keys=True, separators=(",", ":"))
    assert call["arguments_digest"] == hashlib.sha256(canonical.encode()).hexdigest()
