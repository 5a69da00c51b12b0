"""Answers of the Gemini API, whole and broken: what a client of the service gets of each, and what not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support import case_tools, cases, gemini_wire
from tests.support.database import migrated
from tests.support.heard import ONCE, Heard, hear, served
from tests.support.model_server import Attempt, ModelServer
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running
from tests.system.test_cases import TWO_RETRIES, check_calls, check_completed, check_failed

pytestmark = pytest.mark.anyio

WIRE = "gemini-generate-content"
CASES = cases.load("1-provider-stream", "gemini_cases.jsonl") | {
    id: case for id, case in cases.load("1-provider-stream").items() if case["input"]["wire"] == WIRE
}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The service with the tools that the cases ask for."""
    async with migrated(postgres) as url, running(url, tool_modules=("tests.support.case_tools",)) as made:
        yield made


@pytest.fixture(autouse=True)
def called() -> list[tuple[str, dict[str, object]]]:
    """The tool calls that were carried out during the test."""
    case_tools.CALLED.clear()
    return case_tools.CALLED


async def put(
    service: Service, server: ModelServer, id: str, *, lifecycle: Any = TWO_RETRIES, **body: Any
) -> Heard:
    """One case's answer, asked for with tools where it calls some."""
    model = await served(service, server, cases.attempts(CASES[id]), provider="gemini")
    actions = {"actions": True} if CASES[id]["expected"].get("tool_calls") else {}
    return await hear(service, model, lifecycle=lifecycle, **actions, **body)


@pytest.mark.parametrize("id", CASES)
async def test_case(service: Service, model_server: ModelServer, id: str, called: list[Any]) -> None:
    before = len(model_server.requests)
    expected = CASES[id]["expected"]
    heard = await put(service, model_server, id)
    asked = len(model_server.requests) - before
    assert heard.code == expected.get("error_code")
    if expected["outcome"] == "completed":
        check_completed(heard, expected)
        check_calls(heard, expected, called)
        assert asked == 1
    else:
        check_failed(heard, expected)
        assert called == []
        assert asked == (3 if expected["outcome"] == "failed_or_retried" else 1)
    if "usage" in expected:
        usage = heard.run["usage"]
        assert usage["reported"] is True
        assert {"input": usage["input_tokens"], "output": usage["output_tokens"]} == expected["usage"]


async def test_the_next_turn_tells_the_model_what_it_called(
    service: Service, model_server: ModelServer
) -> None:
    heard = await put(service, model_server, "G04")
    model = await served(service, model_server, [Attempt(gemini_wire.text("Two."))], provider="gemini")
    run = await service.operate(heard.run["branch_id"], chat_model=model, actions=True)
    assert run["result"] == "Two."
    asked, told = model_server.requests[-1].body["contents"][1:3]
    assert [part["functionCall"]["args"]["city"] for part in asked["parts"]] == ["Oslo", "Bern"]
    assert [part["functionResponse"]["name"] for part in told["parts"]] == ["weather", "weather"]
    assert (asked["role"], told["role"]) == ("model", "user")


async def test_a_call_that_cannot_be_read_is_a_fault_of_the_models_that_says_so(
    service: Service, model_server: ModelServer
) -> None:
    heard = await put(service, model_server, "G10", lifecycle=ONCE)
    assert heard.run["error"]["message"].endswith("Malformed function call: print(weather(")
    assert heard.detail["type"] == "MALFORMED_FUNCTION_CALL"
    assert (heard.run["error"]["category"], heard.run["partial_text"]) == ("model", "Let me")


async def test_a_quotas_word_for_how_long_to_wait_is_kept(
    service: Service, model_server: ModelServer
) -> None:
    once_more = {"retry": {"attempts": 1, "max_retries": 1, "base_delay_ms": 0}}
    heard = await put(service, model_server, "G16", lifecycle=once_more)
    (tried,) = [event["meta"] for event in heard.events if event["type"] == "RETRY_ATTEMPT"]
    assert tried["delayMs"] == 4
    assert heard.detail["type"] == "RESOURCE_EXHAUSTED"


async def test_an_array_is_refused_in_words_that_help(service: Service, model_server: ModelServer) -> None:
    heard = await put(service, model_server, "G18")
    assert "alt=sse" in heard.run["error"]["message"]


async def test_a_value_is_asked_for_in_the_apis_dialect(service: Service, model_server: ModelServer) -> None:
    value = {"reason": "so", "city": None}
    model = await served(
        service, model_server, [Attempt(gemini_wire.text(json.dumps(value)))], provider="gemini"
    )
    schema = {
        "type": "object",
        "properties": {"reason": {"type": "string"}, "city": {"type": ["string", "null"]}},
        "required": ["reason", "city"],
        "additionalProperties": False,
    }
    heard = await hear(service, model, response_format=schema, model_options={"temperature": 0})
    assert heard.run["result"] == value
    request = model_server.requests[-1]
    assert request.path.endswith(f"/models/{model}:streamGenerateContent?alt=sse")
    config = request.body["generationConfig"]
    assert (config["responseMimeType"], config["temperature"]) == ("application/json", 0)
    assert config["responseSchema"]["properties"]["city"] == {"type": "STRING", "nullable": True}


async def test_a_schema_that_the_api_cannot_take_is_put_into_the_prompt(
    service: Service, model_server: ModelServer
) -> None:
    model = await served(service, model_server, [Attempt(gemini_wire.text('{"a": 1}'))], provider="gemini")
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    heard = await hear(service, model, response_format=schema)
    assert heard.run["result"] == {"a": 1}
    body = model_server.requests[-1].body
    assert "generationConfig" not in body
    assert '"additionalProperties"' in body["contents"][-1]["parts"][-1]["text"]


async def test_an_option_of_another_wire_is_refused_before_anything_is_asked(
    service: Service, model_server: ModelServer
) -> None:
    before = len(model_server.requests)
    heard = await put(service, model_server, "G01", model_options={"max_tokens": 5})
    assert "max_tokens" in heard.run["error"]["message"]
    assert len(model_server.requests) == before
