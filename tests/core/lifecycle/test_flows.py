"""The golden flows, in the pure core: the exact and complete sequence of events and callbacks."""

from __future__ import annotations

import pytest

from tests.support.flows import FLOWS, SUPPORTED, WAITING, assert_walked
from tests.support.stream_driver import drive, options_of


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
    assert_walked(flow, trace.lines())

    assert trace.finish is not None
    status = "completed" if trace.finish.error is None else "failed"
    assert ("cancelled" if trace.finish.aborted else status) == flow["run_status"]
    assert (trace.finish.error.code if trace.finish.error else None) == flow.get("error_code")
    if flow["final_content"] is not None:
        assert machine.text == flow["final_content"] == trace.client_text()
