"""The golden flows, in the pure core: the exact and complete sequence of events and callbacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import DATA
from tests.support.stream_driver import drive, options_of

FLOWS: dict[str, Any] = {
    flow["name"]: flow for flow in json.loads((DATA / "flows.json").read_text("utf-8"))["flows"]
}

WAITING = {
    "checkpoints": "continuation",
    "resume_on_retry": "continuation",
    "resume_on_fallback": "continuation",
    "overlap_inside_chunk": "continuation",
    "should_retry": "decisions from outside",
    "should_retry_veto": "decisions from outside",
    "guardrail_violation": "guardrails",
    "fatal_guardrail": "guardrails",
    "drift": "drift",
}
"""Flows that the machine cannot walk yet, and the feature that each waits for."""

SUPPORTED = [name for name in FLOWS if name not in WAITING]

WORDS = ("*", "error", "state", "violation")
"""Expected values that stand for any."""


def fits(expected: Any, found: Any) -> bool:
    """Whether a value is what a flow expects; objects may have more members."""
    if isinstance(expected, str) and expected in WORDS:
        return True
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and fits(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(fits, expected, found))
    return bool(expected == found) and type(expected) is type(found)


def test_every_flow_is_walked_or_waits_for_a_named_feature() -> None:
    assert set(WAITING) <= set(FLOWS)
    assert set(SUPPORTED) >= {
        "normal",
        "tool_call_in_stream",
        "abort",
        "timeout_inter",
        "timeout_initial",
        "retry_network",
        "retry_transient_status",
        "fallback",
        "retries_then_fallback",
        "retry_inside_fallback",
        "fallback_fails",
        "server_never_answers",
        "zero_output",
    }


@pytest.mark.parametrize("name", SUPPORTED)
def test_flow(name: str) -> None:
    flow = FLOWS[name]
    scripts = [stream["attempts"] for stream in flow["streams"]]
    machine, trace = drive(
        scripts, options_of(flow["options"]), abort_after_tokens=flow.get("abort_after_tokens")
    )
    lines = trace.lines()
    for place, (expected, found) in enumerate(zip(flow["expect"], lines, strict=False)):
        assert found[0] == expected[0], f"step {place}: {[line[0] for line in lines]}"
        assert fits(expected[1], found[1]), f"step {place}, {found[0]}: {found[1]} is not {expected[1]}"
    assert [line[0] for line in lines] == [line[0] for line in flow["expect"]]

    assert trace.finish is not None
    status = "completed" if trace.finish.error is None else "failed"
    assert ("cancelled" if trace.finish.aborted else status) == flow["run_status"]
    assert (trace.finish.error.code if trace.finish.error else None) == flow.get("error_code")
    if flow["final_content"] is not None:
        assert machine.text == flow["final_content"] == trace.client_text()
