"""Lifecycle options over HTTP: from which level they come, and how a bad one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.service import Service

pytestmark = pytest.mark.anyio

GUARDRAILS = "/lifecycle/guardrails"


@pytest.mark.parametrize(
    ("lifecycle", "pointer", "says"),
    [
        ({"patience": 1}, "/lifecycle/patience", ""),
        ({"retry": {"atempts": 1}}, "/lifecycle/retry/atempts", ""),
        ({"retry": {"base_delay_ms": 9, "max_delay_ms": 8}}, "/lifecycle/retry", "base_delay_ms"),
        ({"retry": {"should_retry": "attempt <"}}, "/lifecycle/retry/should_retry", "CEL"),
        ({"retry": {"should_retry": "tries < 2"}}, "/lifecycle/retry/should_retry", "'tries'"),
        (
            {"retry": {"calculate_delay": "[1].map(n, [2].map(m, n * m))"}},
            "/lifecycle/retry/calculate_delay",
            "second loop",
        ),
        ({"guardrails": "all"}, GUARDRAILS, "'all'"),
        ({"guardrails": ["json", "spelling"]}, GUARDRAILS, "'spelling'"),
        ({"guardrails": ["json", "json"]}, GUARDRAILS, "'json'"),
        (
            {"guardrails": [{"name": "custom_pattern", "options": {"patterns": ["("]}}]},
            GUARDRAILS,
            "patterns",
        ),
        (
            {"guardrails": [{"name": "custom_pattern", "options": {"patterns": ["a", "b[ab]{200}c"]}}]},
            GUARDRAILS,
            "options.patterns.1 of custom_pattern",
        ),
        ({"guardrails": [{"name": "json", "options": {"depth": 3}}]}, GUARDRAILS, "depth"),
        ({"guardrails": [{"name": "no_shouting", "options": {"loud": 1}}]}, GUARDRAILS, "no_shouting"),
        ({"drift": {"types": []}}, "/lifecycle/drift", ""),
        ({"drift": {"threshold": 2}}, "/lifecycle/drift", ""),
        (
            {"continue_from_last_good_token": {"min_overlap": 9, "max_overlap": 8}},
            "/lifecycle/continue_from_last_good_token",
            "min_overlap",
        ),
    ],
)
@pytest.mark.parametrize("where", ["request", "branch"])
async def test_an_option_that_makes_no_sense_is_named(
    service: Service, lifecycle: dict[str, Any], pointer: str, says: str, where: str
) -> None:
    if where == "branch":
        answer = await service.http.post("/v1/branches", json={"lifecycle": lifecycle})
    else:
        model = await service.scripted("options", [{"text": "ok"}, {"end": "stop"}])
        branch = await service.branch(chat_model=model)
        answer = await service.http.post(
            f"/v1/branches/{branch}/operate", json={"instruction": "go", "lifecycle": lifecycle}
        )
    problem = answer.json()
    assert answer.status_code == 422, problem
    assert any(error["pointer"].startswith(pointer) for error in problem["errors"]), problem
    assert any(says in error["message"] for error in problem["errors"]), problem


async def test_what_contradicts_another_level_is_named_with_the_request(service: Service) -> None:
    model = await service.scripted("contradiction", [{"text": "ok"}, {"end": "stop"}])
    branch = await service.branch(
        chat_model=model, lifecycle={"continue_from_last_good_token": {"min_overlap": 600}}
    )
    answer = await service.http.post(f"/v1/branches/{branch}/operate", json={"instruction": "go"})
    (error,) = answer.json()["errors"]
    assert answer.status_code == 422
    assert error["pointer"] == "/lifecycle/continue_from_last_good_token/min_overlap"
    larger = {"continue_from_last_good_token": {"max_overlap": 900}}
    assert (await service.operate(branch, lifecycle=larger))["result"] == "ok"


async def test_the_deadline_is_the_runs_its_tools_included(service: Service) -> None:
    call = {"index": 0, "id": "c1", "name": "forever", "arguments": "{}"}
    calls: list[dict[str, Any]] = [{"tool_call": call}, {"end": "tool_calls"}]
    branch = await service.branch(chat_model=await service.scripted("late", calls))
    run = await service.operate(
        branch, actions=True, tools=["forever"], lifecycle={"timeout": {"total_ms": 300}}
    )
    assert (run["status"], run["error"]["code"]) == ("failed", "DEADLINE_EXCEEDED")
    (call,) = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    assert call["status"] == "cancelled"


BROKEN: list[dict[str, Any]] = [{"text": "x"}, {"error": {"kind": "network", "type": "connection_reset"}}]


async def test_levels_merge_field_by_field_the_request_first(service: Service) -> None:
    model = await service.scripted("levels", BROKEN)
    await service.model(
        "levels",
        provider="scripted",
        options={"streams": [{"attempts": [BROKEN]}]},
        lifecycle={"retry": {"max_retries": 4, "base_delay_ms": 0}, "continue_from_last_good_token": True},
    )
    branch = await service.branch(
        chat_model=model,
        lifecycle={"retry": {"max_retries": 3}, "continue_from_last_good_token": {"checkpoint_interval": 1}},
    )
    run = await service.operate(branch, lifecycle={"retry": {"max_retries": 2}})
    events = await service.events(run["id"])
    # The limit is the request's, the pause the model's, the interval the branch's.
    assert run["attempts"] == 3
    assert {e["meta"]["delayMs"] for e in events if e["type"] == "RETRY_ATTEMPT"} == {0}
    assert "CHECKPOINT_SAVED" in {event["type"] for event in events}
    off = await service.operate(branch, lifecycle={"retry": None, "continue_from_last_good_token": None})
    assert off["attempts"] == 1
    assert "CHECKPOINT_SAVED" not in {event["type"] for event in await service.events(off["id"])}


async def test_guardrails_can_be_listed(service: Service) -> None:
    listed = await service.get("/v1/guardrails")
    names = {rule["name"]: rule for rule in listed["data"]}
    assert {"json", "custom_pattern", "no_shouting"} <= names.keys()
    assert names["no_shouting"]["kind"] == "plug_in"
    assert names["custom_pattern"]["options"]["required"] == ["patterns"]
    assert listed["presets"]["minimal"] == ["json", "zero_output"]
