"""An answer that is not what was asked for runs no tool, however it came and whatever is to become of it."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from tests.support.service import Service
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

FORMAT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
ASKS = {
    "action_required": True,
    "action_requests": [{"function": "note", "arguments": {"text": "never"}}],
}
GOOD = {"a": 1, "risk": 1, **ASKS}

MISMATCHES: dict[str, tuple[str, str, str]] = {
    "wrong type": (json.dumps({**GOOD, "a": "1"}), "stop", "schema"),
    "missing": (json.dumps({"risk": 1, **ASKS}), "stop", "schema"),
    "one more": (json.dumps({**GOOD, "b": 1}), "stop", "schema"),
    "further field": (json.dumps({**GOOD, "risk": "high"}), "stop", "schema"),
    "requests of the wrong form": (json.dumps({**GOOD, "action_requests": ASKS}), "stop", "schema"),
    "a list around it": (json.dumps([GOOD]), "stop", "schema"),
    "no JSON": ("note(text='never')", "stop", "extraction"),
    "several values": (json.dumps(GOOD) + "\n" + json.dumps({**GOOD, "a": 2}), "stop", "extraction"),
    "cut off": (json.dumps(GOOD)[:-1], "length", "extraction"),
    "never ended": (json.dumps(GOOD)[:-1], "stop", "extraction"),
    "nothing": ("null", "stop", "extraction"),
}
TRANSPORTS = {
    "native schema": {"native_schema": True},
    "in the prompt": {"native_schema": False, "native_tools": False},
    "with native calls that nobody offered": {"native_schema": True},
}
POLICIES = ("return_value", "return_none", "raise")


@pytest.mark.parametrize(("transport", "mismatch"), list(product(TRANSPORTS, MISMATCHES)))
async def test_no_tool_runs(service: Service, transport: str, mismatch: str) -> None:
    text, finish, kind = MISMATCHES[mismatch]
    steps: list[dict[str, Any]] = [{"text": text}, {"end": finish}]
    if "native calls" in transport:
        call = {"index": 0, "id": "c", "name": "note", "arguments": '{"text": "never"}'}
        steps.insert(1, {"tool_call": call})
    name = f"{transport}-{mismatch}".replace(" ", "-")
    options = {**TRANSPORTS[transport], "streams": [{"attempts": [steps]}]}
    await service.model(name, provider="scripted", options=options)
    CALLS.clear()
    for policy in POLICIES:
        branch = await service.branch(chat_model=name)
        answer = await service.http.post(
            f"/v1/branches/{branch}/operate",
            json={
                "instruction": "go",
                "actions": True,
                "tools": ["note"],
                "response_format": FORMAT,
                "field_models": [{"name": "risk", "schema": {"type": "integer"}}],
                "handle_validation": policy,
            },
        )
        assert answer.status_code == (422 if policy == "raise" else 200), answer.text
        told = answer.json()
        run = await service.get(f"/v1/runs/{told['run_id'] if policy == 'raise' else told['id']}")
        assert (run["validation"]["ok"], run["validation"]["kind"]) == (False, kind)
        assert run["function_calls"] == []
        assert run["status"] == ("failed" if policy == "raise" else "completed")
        if policy == "raise":
            assert told["code"] == "result_mismatch"
        if policy == "return_none":
            assert run["result"] is None
        if policy == "return_value":
            assert run["result"] is not None
        types = [event["type"] for event in await service.events(run["id"])]
        assert "TOOL_START" not in types
        kinds = [message["kind"] for message in await service.messages(branch)]
        assert kinds == ["instruction", "assistant_response"]
    assert CALLS == []


async def test_the_same_answer_runs_it_when_it_fits(service: Service) -> None:
    name = await service.scripted("fits", [{"text": json.dumps(GOOD)}, {"end": "stop"}])
    CALLS.clear()
    run = await service.operate(
        await service.branch(chat_model=name),
        actions=True,
        response_format=FORMAT,
        field_models=[{"name": "risk", "schema": {"type": "integer"}}],
    )
    assert CALLS == ["never"]
    assert run["result"]["action_responses"][0]["output"] == "never"
