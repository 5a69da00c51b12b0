"""The golden flows over HTTP: what a client reads of a run is exactly what the core was made to yield."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import canonical
from tests.support.flows import FLOWS, assert_walked
from tests.support.service import Service, text_by_offset

pytestmark = pytest.mark.anyio

DERIVED = ("on_token", "on_event")
"""Callbacks that follow from the events; the first stands in the flows, after each TOKEN."""


@dataclass(frozen=True)
class Walked:
    """A flow's run at its end."""

    run: dict[str, Any]
    events: list[dict[str, Any]]


@pytest.fixture(scope="module")
async def walks(service: Service) -> Mapping[str, Walked]:
    """Every flow that can be walked, all at the same time: some wait for a time limit."""
    walked = await asyncio.gather(*(walk(service, FLOWS[name]) for name in FLOWS))
    return dict(zip(FLOWS, walked, strict=True))


async def walk(service: Service, flow: Mapping[str, Any]) -> Walked:
    """Run a flow on models of its own."""
    names = [f"{flow['name']}-{at}" for at in range(len(flow["streams"]))]
    for name, stream in zip(names, flow["streams"], strict=True):
        await service.scripted(name, *stream["attempts"])
    branch = await service.branch(chat_model=names[0])
    lifecycle = {**flow["options"], "fallbacks": names[1:]}
    if "abort_after_tokens" in flow:
        run = await cancelled_after(service, branch, flow["abort_after_tokens"], lifecycle)
    else:
        run = await service.operate(branch, lifecycle=lifecycle)
    return Walked(run, await service.events(run["id"]))


async def cancelled_after(
    service: Service, branch: str, tokens: int, lifecycle: Mapping[str, Any]
) -> dict[str, Any]:
    """Operate, and cancel when so many tokens have been read."""
    run = await service.started(branch, lifecycle=lifecycle)
    async for frame in service.stream("GET", f"/v1/runs/{run['id']}/events"):
        tokens -= frame.event == "TOKEN"
        if frame.event == "TOKEN" and tokens == 0:
            answer = await service.http.post(f"/v1/runs/{run['id']}/cancel")
            assert answer.status_code in (200, 202)
    return await service.ended(run["id"])


def lines_of(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Events as (type, meta) and callbacks as ("->name", args), in order; run-level events left out."""
    lines: list[tuple[str, Any]] = []
    for event in events:
        if event["type"].startswith("RUN_"):
            continue
        lines.append((event["type"], event["meta"]))
        if event["type"] == "TOKEN":
            lines.append(("->on_token", [event["meta"]["text"]]))
        lines += [(f"->{c['name']}", c["args"]) for c in event["callbacks"] if c["name"] not in DERIVED]
    return lines


@pytest.mark.parametrize("name", FLOWS)
async def test_flow(walks: Mapping[str, Walked], name: str) -> None:
    flow, run, events = FLOWS[name], walks[name].run, walks[name].events
    assert_walked(flow, lines_of(events))
    assert run["status"] == flow["run_status"]
    assert (run["error"] or {}).get("code") == flow.get("error_code")
    if flow["final_content"] is not None:
        assert run["result"] == flow["final_content"] == text_by_offset(events)


@pytest.mark.parametrize("name", FLOWS)
async def test_the_envelope_of_every_event(walks: Mapping[str, Walked], name: str) -> None:
    run, events = walks[name].run, walks[name].events
    assert [event["seq"] for event in events] == list(range(1, run["last_seq"] + 1))
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    assert {event["run_id"] for event in events} == {run["id"]}
    assert {event["branch_id"] for event in events} == {run["branch_id"]}
    in_stream = [event for event in events if not event["type"].startswith("RUN_")]
    assert len({event["stream_id"] for event in in_stream}) == 1
    place = (1, 0)
    for event in in_stream:
        if event["type"] == "ATTEMPT_START":
            place = (event["meta"]["attempt"], place[1])
        elif event["type"] == "FALLBACK_START":
            place = (1, event["meta"]["toIndex"])
        assert (event["attempt"], event["fallback_index"]) == place, event["type"]
    assert (run["fallback_index"], run["attempts"]) == (
        place[1],
        sum(event["type"] == "STREAM_INIT" for event in events),
    )


@pytest.mark.parametrize("scenario", canonical.scenarios(), ids=lambda scenario: scenario["id"])
async def test_canonical_scenario(service: Service, scenario: Mapping[str, Any]) -> None:
    config = scenario["config"]
    models = [
        await service.scripted(f"{scenario['id']}-{at}", *attempts)
        for at, attempts in enumerate(canonical.scripts_of(config))
    ]
    more = {"fallbacks": models[1:], "context": config.get("context", {})}
    branch = await service.branch(chat_model=models[0])
    run = await service.operate(branch, lifecycle={**canonical.lifecycle_of(config), **more})
    events = await service.events(run["id"])
    canonical.assert_events(scenario, events, context=True)
    fired = [(call["name"], call["args"]) for event in events for call in event["callbacks"]]
    canonical.assert_callbacks(scenario, fired)
