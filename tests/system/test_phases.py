"""What is done with an answer, and in which order: nothing that was switched off, and no tool too early."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import chat_wire
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

FORMAT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CALL = {"function": "note", "arguments": {"text": "ran"}}
ASKS: dict[str, Any] = {"a": 1, "action_required": True, "action_requests": [CALL]}


@pytest.fixture(autouse=True)
def _no_calls_yet() -> None:
    CALLS.clear()


async def asked(
    service: Service, server: ModelServer, answer: Any, **body: Any
) -> tuple[dict[str, Any], Any]:
    """The run, and the body of the last request to the model."""
    said = Attempt(chat_wire.text(answer if isinstance(answer, str) else json.dumps(answer)))
    branch = await service.branch(chat_model=await served(service, server, [said]))
    run = await service.operate(branch, **body)
    return run, server.requests[-1].body


@pytest.mark.parametrize("more", [{}, {"response_format": FORMAT}, {"reason": True}])
async def test_a_raw_answer_is_a_text_and_runs_nothing(
    service: Service, model_server: ModelServer, more: dict[str, Any]
) -> None:
    parser = await served(service, model_server, [Attempt(chat_wire.text("never"))])
    run, _ = await asked(
        service, model_server, ASKS, actions=True, skip_validation=True, parse_model=parser, **more
    )
    assert (run["result"], run["validation"], run["function_calls"]) == (json.dumps(ASKS), None, [])
    assert (CALLS, run["attempts"]) == ([], 1)


async def test_without_the_outer_check_any_json_passes_and_tools_run(
    service: Service, model_server: ModelServer
) -> None:
    answer = {**ASKS, "a": "no integer"}
    run, _ = await asked(service, model_server, answer, actions=True, response_format=FORMAT, validate=False)
    assert run["result"]["a"] == "no integer"
    assert CALLS == ["ran"]


@pytest.mark.parametrize(
    "body", [{"actions": True, "invoke_actions": False}, {"actions": False}, {}, {"instruct": {}}]
)
async def test_what_was_not_enabled_is_neither_offered_nor_run(
    service: Service, model_server: ModelServer, body: dict[str, Any]
) -> None:
    run, request = await asked(service, model_server, ASKS, response_format=FORMAT, **body)
    assert (CALLS, run["function_calls"]) == ([], [])
    assert "action_requests" not in json.dumps(request)
    assert "tools" not in request
    assert run["result"] == ASKS, "without actions the names are nobody's but the caller's"


async def test_a_text_that_looks_like_a_call_runs_nothing(
    service: Service, model_server: ModelServer
) -> None:
    for text in (json.dumps(ASKS), json.dumps(CALL), "note(text='ran')"):
        run, _ = await asked(service, model_server, text, actions=True)
        assert run["result"] == text
    assert CALLS == []


@pytest.mark.parametrize("way", ["loose", "instruct", "both"])
async def test_actions_may_be_enabled_in_either_place(
    service: Service, model_server: ModelServer, way: str
) -> None:
    body: dict[str, Any] = {"response_format": FORMAT}
    if way != "instruct":
        body["actions"] = True
    if way != "loose":
        body["instruct"] = {"actions": True, "instruction": "go"}
    run, _ = await asked(service, model_server, ASKS, **body)
    assert CALLS == ["ran"]
    assert run["result"] == {**ASKS, "action_responses": run["result"]["action_responses"]}


@pytest.mark.parametrize("requests", [[], None, "absent"])
async def test_an_answer_that_asks_for_nothing_is_left_as_it_is(
    service: Service, model_server: ModelServer, requests: Any
) -> None:
    answer = {"a": 1, "action_required": False, "action_requests": requests}
    if requests == "absent":
        del answer["action_requests"]
    run, _ = await asked(service, model_server, answer, actions=True, response_format=FORMAT)
    assert run["result"] == answer


async def test_a_tool_that_was_not_offered_is_an_error_value(
    service: Service, model_server: ModelServer
) -> None:
    run, _ = await asked(service, model_server, ASKS, actions=True, tools=["add"], response_format=FORMAT)
    (response,) = run["result"]["action_responses"]
    assert response["error"].startswith("TOOL_NOT_FOUND")
    assert CALLS == []


async def test_without_a_format_generated_fields_are_inspected(
    service: Service, model_server: ModelServer
) -> None:
    reason = {"title": "t", "content": "c", "confidence_score": 0.5}
    answer = {"reason": reason, "value": "text", "action_required": True, "action_requests": [CALL]}
    run, _ = await asked(service, model_server, answer, actions=True, reason=True)
    assert run["result"]["reason"] == reason
    assert [r["output"] for r in run["result"]["action_responses"]] == CALLS == ["ran"]
