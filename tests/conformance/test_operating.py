"""Operate: what the model is shown, what becomes of its answer, and what the result holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import chat_wire
from tests.support.conformance_tools import SAID
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service

pytestmark = pytest.mark.anyio

FORMAT = {
    "title": "City",
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["name"],
}
REASON = {"title": "t", "content": "c", "confidence_score": 0.5}
OSLO = {"name": "Oslo", "people": 700_000}
NATIVE = pytest.mark.parametrize("native", [True, False], ids=["native", "in the prompt"])


def asks(*texts: str) -> dict[str, Any]:
    """The members of an answer that asks for `say`."""
    calls = [{"function": "say", "arguments": {"text": text}} for text in texts]
    return {"action_required": True, "action_requests": calls}


async def operated(
    service: Service, server: ModelServer, answer: Any, native: bool = True, **body: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run on a branch of its own, and the body of the model's last request."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    options = {} if native else {"native_tools": False, "native_schema": False}
    model = await served(service, server, [Attempt(chat_wire.text(text))], options=options)
    run = await service.operate(await service.branch(chat_model=model), lifecycle={"retry": None}, **body)
    return run, server.requests[-1].body


async def kinds_of(service: Service, run: dict[str, Any]) -> list[str]:
    return [message["kind"] for message in await service.messages(run["branch_id"])]


TURN = ["instruction", "assistant_response"]


@pytest.mark.parametrize("body", [{}, {"skip_validation": True}, {"skip_validation": True, "reason": True}])
async def test_a_raw_answer_is_the_text_and_two_messages(
    service: Service, model_server: ModelServer, body: dict[str, Any]
) -> None:
    run, _ = await operated(service, model_server, json.dumps(OSLO), **body)
    assert run["result"] == json.dumps(OSLO)
    assert await kinds_of(service, run) == TURN


@NATIVE
async def test_a_format_gives_a_value_of_it_and_two_messages(
    service: Service, model_server: ModelServer, native: bool
) -> None:
    run, asked = await operated(service, model_server, OSLO, native, response_format=FORMAT)
    assert (run["result"], run["validation"]["ok"]) == (OSLO, True)
    assert await kinds_of(service, run) == TURN
    assert ("response_format" in asked) is native
    assert '"people"' in json.dumps(asked if native else asked["messages"][-1]["content"]).replace("\\", "")


@NATIVE
@pytest.mark.parametrize("strategy", ["concurrent", "sequential"])
async def test_the_answers_own_members_stay_beside_one_response_for_each_request(
    service: Service, model_server: ModelServer, native: bool, strategy: str
) -> None:
    answer = {**OSLO, **asks("a", "b")}
    run, _ = await operated(
        service, model_server, answer, native, actions=True, response_format=FORMAT, action_strategy=strategy
    )
    result = run["result"]
    responses = result.pop("action_responses")
    assert result == answer
    assert [(r["function"], r["arguments"], r["output"]) for r in responses] == [
        ("say", {"text": "a"}, "a"),
        ("say", {"text": "b"}, "b"),
    ]
    assert SAID == ["a", "b"]
    assert sorted(await kinds_of(service, run)) == sorted([*TURN, *["action_request", "action_response"] * 2])


async def test_a_native_call_leaves_one_request_and_one_response(service: Service) -> None:
    call = {"index": 0, "id": "c", "name": "refuse", "arguments": "{}"}
    model = await service.scripted("native-failure", [{"tool_call": call}, {"end": "tool_calls"}])
    run = await service.operate(await service.branch(chat_model=model), actions=True)
    (response,) = run["result"]["action_responses"]
    assert response["error"] == "ValueError: no"
    assert await kinds_of(service, run) == [*TURN, "action_request", "action_response"]
    types = [event["type"] for event in await service.events(run["id"])]
    assert types.count("TOOL_REQUESTED") == 1, "the stream has announced it already"


async def test_reason_alone_is_asked_for_and_given_back(service: Service, model_server: ModelServer) -> None:
    answer = {"reason": REASON, "value": "Oslo"}
    run, asked = await operated(service, model_server, answer, reason=True)
    schema = asked["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["reason", "value"]
    assert run["result"] == answer


@pytest.mark.parametrize(
    ("confidence", "fits"), [(0.123456, True), (None, True), (7, True), ("0.9", False), ("high", False)]
)
async def test_a_confidence_is_kept_as_it_was_said_or_refused(
    service: Service, model_server: ModelServer, confidence: Any, fits: bool
) -> None:
    answer = {"reason": {**REASON, "confidence_score": confidence}, "value": "Oslo"}
    run, _ = await operated(service, model_server, answer, reason=True)
    assert run["validation"]["ok"] is fits
    if fits:
        assert run["result"] == answer
    else:
        assert run["validation"]["errors"][0].startswith("/reason/confidence_score: ")


@pytest.mark.parametrize("native", [True, False])
async def test_no_model_is_shown_a_place_for_responses(
    service: Service, model_server: ModelServer, native: bool
) -> None:
    made_up = [{"function": "say", "arguments": {}, "output": "made up"}]
    answer = {**OSLO, **asks("a"), "action_responses": made_up}
    run, asked = await operated(service, model_server, answer, native, actions=True, response_format=FORMAT)
    assert "action_responses" not in json.dumps(asked)
    assert [response["output"] for response in run["result"]["action_responses"]] == ["a"]


REMOVED = ("operative", "operative_model", "request_model", "imodel", "persist_dir", "snapshot_dir")


@pytest.mark.parametrize("name", REMOVED)
async def test_what_is_no_option_any_more_is_refused_with_a_way_on(service: Service, name: str) -> None:
    branch = await service.branch(
        chat_model=await service.scripted("unasked", [{"text": "x"}, {"end": "stop"}])
    )
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "go", name: "anything"}
    )
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert (fault["pointer"], fault["code"]) == (f"/{name}", "removed_option")
    assert (await service.get(f"/v1/branches/{branch}/runs"))["data"] == []


async def test_another_action_strategy_is_refused(service: Service) -> None:
    branch = await service.branch()
    for body in ({"action_strategy": "parallel"}, {"instruct": {"action_strategy": "parallel"}}):
        answer = await service.http.post(
            f"/v1/branches/{branch}/operate", json={"instruction": "go", "actions": True, **body}
        )
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"].endswith("/action_strategy")


@pytest.mark.parametrize("where", ["request", "branch"])
async def test_the_requests_model_answers_else_the_branchs(
    service: Service, model_server: ModelServer, where: str
) -> None:
    names = {
        level: await served(service, model_server, [Attempt(chat_wire.text(level))])
        for level in ("request", "branch")
    }
    branch = await service.branch(chat_model=names["branch"])
    body = {"chat_model": names["request"]} if where == "request" else {}
    run = await service.operate(branch, **body)
    assert run["result"] == where


@pytest.mark.parametrize("strategy", ["sequential", "concurrent", None])
async def test_the_strategy_of_an_instruct_counts_when_the_request_says_none(
    service: Service, model_server: ModelServer, strategy: str | None
) -> None:
    instruct = {"instruction": "go", "actions": True, "action_strategy": strategy}
    run, _ = await operated(
        service, model_server, {"value": "v", **asks("a", "b")}, native=False, instruct=instruct
    )
    kinds = (await kinds_of(service, run))[2:]
    one_by_one = kinds == ["action_request", "action_response"] * 2
    assert one_by_one is (strategy == "sequential")
    assert SAID == ["a", "b"]


@pytest.mark.parametrize("suppress", [True, False])
async def test_a_tools_failure_is_a_value_unless_the_request_wants_it_raised(
    service: Service, model_server: ModelServer, suppress: bool
) -> None:
    answer = {
        "value": "v",
        "action_required": True,
        "action_requests": [{"function": "refuse", "arguments": {}}],
    }
    model = await served(
        service,
        model_server,
        [Attempt(chat_wire.text(json.dumps(answer)))],
        options={"native_tools": False, "native_schema": False},
    )
    branch = await service.branch(chat_model=model)
    response = await service.http.post(
        f"/v1/branches/{branch}/operate",
        json={"instruction": "go", "actions": True, "suppress_errors": suppress},
    )
    assert response.status_code == (200 if suppress else 424), response.text
    kinds = [message["kind"] for message in await service.messages(branch)]
    assert kinds[-2:] == ["action_request", "action_response"]
    if suppress:
        (told,) = response.json()["result"]["action_responses"]
        assert told["error"] == "ValueError: no"


async def test_a_null_result_is_a_response_too(service: Service, model_server: ModelServer) -> None:
    answer = {
        "value": "v",
        "action_required": True,
        "action_requests": [{"function": "nothing", "arguments": {}}],
    }
    run, _ = await operated(service, model_server, answer, native=False, actions=True)
    (told,) = run["result"]["action_responses"]
    assert (told["output"], told["error"], told["status"]) == (None, None, "completed")
