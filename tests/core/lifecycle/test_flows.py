"""The golden flows, in the pure core: the exact and complete sequence of events and callbacks."""

from __future__ import annotations

import pytest

from tests.support.decide import decide_by
from tests.support.flows import FLOWS, assert_walked
from tests.support.stream_driver import drive, options_of


@pytest.mark.parametrize("name", FLOWS)
def test_flow(name: str) -> None:
    flow = FLOWS[name]
    scripts = [stream["attempts"] for stream in flow["streams"]]
    machine, trace = drive(
        scripts,
        options_of(flow["options"]),
        abort_after_tokens=flow.get("abort_after_tokens"),
        decide=decide_by(flow["options"]),
    )
    assert_walked(flow, trace.lines())

    assert trace.finish is not None
    status = "completed" if trace.finish.error is None else "failed"
    assert ("cancelled" if trace.finish.aborted else status) == flow["run_status"]
    assert (trace.finish.error.code if trace.finish.error else None) == flow.get("error_code")
    if flow["final_content"] is not None:
        assert machine.text == flow["final_content"] == trace.client_text()
