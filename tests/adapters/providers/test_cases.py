"""Failures from the field, as far as a provider can see them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.adapters.http_client import model_client
from app.adapters.providers.openai import OpenAIProvider
from app.core.faults import FaultKind
from tests.support import cases
from tests.support.answers import Answer, ask, opening
from tests.support.model_server import ModelServer
from tests.support.polling import until

pytestmark = pytest.mark.anyio

CASES = {
    id: case
    for id, case in cases.load("1-provider-stream").items()
    if case["input"]["wire"] == "openai-chat-completions"
}


async def answered(case: dict[str, Any], options: dict[str, Any]) -> Answer:
    """The first attempt of a case, read by the provider; the server has seen us leave."""
    async with ModelServer({"m": cases.attempts(case)}) as server, model_client() as client:
        answer = await ask(
            OpenAIProvider(client), opening("openai", base_url=server.base_url, options=options)
        )
        await until(lambda: server.answered or server.left_early)
    return answer


def arguments(text: str) -> Any:
    return json.loads(text) if text.strip() else {}


@pytest.mark.parametrize("id", CASES)
async def test_case(id: str) -> None:
    expected = CASES[id]["expected"]
    answer = await answered(CASES[id], CASES[id]["input"].get("profile", {}))
    if "text" in expected:
        assert answer.text == expected["text"]
    if "text_len" in expected:
        assert len(answer.text) == expected["text_len"]
    if "tool_calls" in expected:
        assert [(name, arguments(raw)) for name, raw in answer.called] == [
            (call["name"], call["arguments"]) for call in expected["tool_calls"]
        ]
        ids = [call.get("id", "") for call in expected["tool_calls"]]
        assert [call.id for call in answer.calls.values()] == ids
    if "finish_reason" in expected:
        assert answer.finish == {"unknown": None}.get(expected["finish_reason"], expected["finish_reason"])
    if "usage" in expected:
        assert answer.usage == (expected["usage"]["input"], expected["usage"]["output"])
    assert answer.reasoning == expected.get("reasoning", answer.reasoning)
    assert answer.refusal == expected.get("refusal", "")
    fails_here = expected.get("error_code") == "PROVIDER_ERROR"
    assert (answer.fault is not None) == fails_here
    if expected["outcome"] == "completed":
        assert answer.ended


async def test_an_answer_that_is_cut_has_neither_end_mark_nor_reason() -> None:
    answer = await answered(CASES["P08"], {})
    assert (answer.ended, answer.finish_raw, answer.fault) == (False, None, None)
    assert answer.text == "The three steps are: 1) mix, 2) ba"


async def test_an_error_object_in_the_place_of_an_answer_keeps_its_words() -> None:
    fault = (await answered(CASES["P11"], {})).fault
    assert fault is not None
    assert (fault.kind, fault.status, fault.provider_code) == (FaultKind.IN_STREAM, 400, 400)
    assert (fault.type, fault.message) == ("BadRequestError", "image input is not supported by this model")


async def test_a_failed_generation_is_kept_for_diagnosis_and_is_no_tool_call() -> None:
    answer = await answered(CASES["P13"], {})
    assert answer.fault is not None
    assert (answer.fault.status, answer.fault.provider_code) == (400, "tool_use_failed")
    assert answer.fault.detail["failed_generation"] == '{"name":"lookup","arguments":{"bad":1}}'
    assert answer.calls == {}


async def test_tags_stay_in_the_text_unless_the_profile_says_so() -> None:
    answer = await answered(CASES["P34"], {})
    assert answer.calls == {}
    assert answer.text.startswith("Checking. <tool_call>\n{")


async def test_an_event_over_the_limit_is_a_fault() -> None:
    answer = await answered(CASES["P28"], {"max_event_bytes": 1_000_000})
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.type) == (FaultKind.MALFORMED, "too_large")
