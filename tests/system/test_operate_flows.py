"""What follows the model's stream: reading the answer, mending it, and the tools that it asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.core.events import event_types
from app.core.events.structured import ALIASES
from tests.conftest import DATA
from tests.support.flows import FLOWS as STREAM_FLOWS
from tests.support.flows import fits
from tests.support.invariants import CONTRACT
from tests.support.service import Service

pytestmark = pytest.mark.anyio

FLOWS: dict[str, Any] = {
    flow["name"]: flow for flow in json.loads((DATA / "operate_flows.json").read_text("utf-8"))["flows"]
}

SHOWN = ("PARSE_", "AUTO_CORRECT_", "SCHEMA_VALIDATION_", "TOOL_", "RESULT_", "RUN_COMPLETED", "RUN_FAILED")
"""Types that a flow lists; beside them the beginning of each stream, with its purpose."""


async def walked(service: Service, flow: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The run of a flow, and its events."""
    model = await service.scripted(f"{flow['name']}-model", *flow["attempts"])
    body = dict(flow["body"])
    if "repairs" in flow:
        # Each repair is another stream of the run on the parse model.
        streams = [{"attempts": [attempt]} for attempt in flow["repairs"]]
        name = body["parse_model"] = f"{flow['name']}-parser"
        await service.model(name, provider="scripted", options={"streams": streams})
    run = await service.operate(await service.branch(chat_model=model), **body)
    return run, await service.events(run["id"])


def lines_of(events: list[dict[str, Any]]) -> list[list[Any]]:
    """What a flow lists of a log."""
    return [
        [event["type"], event["meta"]]
        for event in events
        if event["type"].startswith(SHOWN) or event["type"] == "SESSION_START"
    ]


@pytest.mark.parametrize("name", FLOWS)
async def test_flow(service: Service, name: str) -> None:
    flow = FLOWS[name]
    run, events = await walked(service, flow)
    found = lines_of(events)
    assert [line[0] for line in found] == [line[0] for line in flow["expect"]]
    for (kind, expected), (_, meta) in zip(flow["expect"], found, strict=True):
        assert fits(expected, meta), f"{kind}: {meta} is not {expected}"
    assert run["status"] == flow["run_status"]
    assert fits(flow["result"], run["result"])
    openings = sum(event["type"] == "STREAM_INIT" for event in events)
    assert run["attempts"] == openings == flow["model_calls"]


async def test_repairs_retries_and_fallbacks_share_one_budget(service: Service) -> None:
    # Each layer alone would make many calls: 4 attempts on each of 3 models, and 3 repairs of 7 attempts.
    broken: list[Mapping[str, Any]] = [
        {"text": "{"},
        {"error": {"kind": "network", "type": "connection_reset"}},
    ]
    names = [await service.scripted(f"budget-{at}", broken) for at in range(2)]
    names.append(await service.scripted("budget-2", broken, [{"text": "no JSON"}, {"end": "stop"}]))
    parser = await service.scripted("budget-parser", [{"text": "still none"}, {"end": "stop"}])
    lifecycle = {
        "fallbacks": names[1:],
        "retry": {"attempts": 3, "max_retries": 3, "base_delay_ms": 0},
        "max_model_calls": 11,
    }
    branch = await service.branch(chat_model=names[0])
    run = await service.operate(
        branch, lifecycle=lifecycle, parse_model=parser, response_format={"type": "object"}
    )
    events = await service.events(run["id"])
    assert sum(event["type"] == "STREAM_INIT" for event in events) == run["attempts"] == 11
    assert run["validation"]["ok"] is False
    assert [e["meta"]["code"] for e in events if e["type"] == "ERROR"][-1] == "MODEL_CALLS_EXHAUSTED"


async def test_a_parse_model_has_options_of_its_own(service: Service) -> None:
    fault: Mapping[str, Any] = {"error": {"kind": "network", "type": "connection_reset"}}
    model = await service.scripted("asked", [{"text": "none"}, {"end": "stop"}])
    streams = [{"attempts": [[fault], [fault], [{"text": "{}"}, {"end": "stop"}]]}]
    await service.model(
        "mender",
        provider="scripted",
        options={"streams": streams},
        lifecycle={"retry": {"max_retries": 2, "base_delay_ms": 0}},
    )
    branch = await service.branch(chat_model=model, lifecycle={"retry": {"attempts": 0}})
    run = await service.operate(branch, parse_model="mender", response_format={"type": "object"})
    assert (run["result"], run["attempts"]) == ({}, 1 + 3)


def test_every_type_of_the_contract_is_emitted_by_a_flow() -> None:
    consensus = json.loads((DATA / "consensus_flows.json").read_text("utf-8"))
    flows = [*STREAM_FLOWS.values(), *FLOWS.values(), *consensus["flows"], *consensus["sequences"].values()]
    listed = set(_types(flows))
    by_alias = {alias for name, alias in ALIASES.items() if name in listed}
    assert CONTRACT.keys() - listed - by_alias == set()
    assert len(CONTRACT) == 73
    assert CONTRACT.keys() <= event_types().keys() | set(ALIASES.values())


def _types(value: Any) -> list[str]:
    """The first member of every pair of a type and a meta, wherever it stands."""
    if isinstance(value, dict):
        return [found for member in value.values() for found in _types(member)]
    if not isinstance(value, list):
        return []
    if len(value) == 2 and isinstance(value[0], str) and value[0].isupper() and isinstance(value[1], dict):
        return [value[0]]
    return [found for member in value for found in _types(member)]
