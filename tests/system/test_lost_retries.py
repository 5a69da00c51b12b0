"""Calls that are lost, or not wanted any more, between two attempts: each has one end and one response."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import serving
from tests.support.service import Service

pytestmark = pytest.mark.anyio

_numbers = itertools.count()
PATIENT = {"retry_attempts": 2, "retry_initial_delay": 2}


def failing() -> dict[str, Any]:
    return {"function": "steady", "arguments": {"key": f"lost-{next(_numbers)}", "failures": 9}}


ESCALATE = {"rules": [{"when": "function == 'echo'", "effect": "escalate"}]}
ECHO = {"function": "echo", "arguments": {"value": 7}}


@pytest.mark.parametrize("waited", [False, True])
async def test_a_process_that_is_lost_between_two_attempts_leaves_no_request_unanswered(
    database_url: str, tmp_path: Path, waited: bool
) -> None:
    requests = [ECHO, failing()] if waited else [failing()]
    body = {"requests": requests, "call_params": PATIENT, "strategy": "sequential"}
    async with serving(database_url, tmp_path) as first:
        made = await first.http.post("/v1/branches", json={"gate": ESCALATE})
        branch = made.json()["id"]
        run_id = await first.started(branch, "act", body)
        if waited:
            await first.follow(run_id, "RUN_WAITING")
            (asked,) = (await first.http.get("/v1/approvals")).json()["data"]
            path = f"/v1/function-calls/{asked['function_call_id']}/decision"
            assert (await first.http.post(path, json={"decision": "approve"})).status_code == 200
        await first.follow(run_id, "TOOL_ERROR")
        first.process.kill()
        await first.process.wait()
    async with serving(database_url, tmp_path) as second:
        events = await second.follow(run_id, "")
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        types = [event["type"] for event in events]
        assert types.count("TOOL_ERROR") == 3
        assert types.count("TOOL_COMPLETED") == len(requests)
        assert types[-1] == "RUN_COMPLETED"
        messages = (await second.http.get(f"/v1/branches/{branch}/messages?order=asc")).json()["data"]
        kinds = [message["kind"] for message in messages]
        assert kinds == ["action_request", "action_response"] * len(requests)
        assert messages[-1]["content"]["error"] == "ConnectionError: try 2"
        page = await second.http.get(f"/v1/function-calls?run_id={run_id}")
        attempts = sorted(row["attempt"] for row in page.json()["data"] if row["function"] == "steady")
        assert attempts == [1, 2, 3]


async def test_a_sibling_s_failure_between_two_attempts_repeats_no_event(service: Service) -> None:
    branch = await service.branch()
    requests = [failing(), {"function": "flaky", "arguments": failing()["arguments"]}]
    answer = await service.http.post(
        f"/v1/branches/{branch}/act",
        json={
            "requests": requests,
            "call_params": PATIENT | {"throttle_period": 0.3},
            "suppress_errors": False,
        },
    )
    assert answer.status_code == 424, answer.text
    run = await service.get(f"/v1/runs/{answer.json()['run_id']}")
    types = [event["type"] for event in await service.events(run["id"])]
    assert types.count("TOOL_ERROR") == types.count("TOOL_COMPLETED") == 2
    rows = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    assert {row["status"] for row in rows} == {"failed"}
    kinds = [message["kind"] for message in await service.messages(branch)]
    assert kinds.count("action_request") == kinds.count("action_response") == 2
