"""How calls of a batch are made: attempts, limits, pauses, and who is told of failures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.service import Service
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

_numbers = itertools.count()


def key() -> str:
    """One that no other test uses."""
    return f"key-{next(_numbers)}"


async def acted(service: Service, *requests: Mapping[str, Any], **body: Any) -> dict[str, Any]:
    return await service.act(await service.branch(), *requests, **body)


async def attempts_of(service: Service, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a run's calls, in order."""
    rows = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    return sorted(rows, key=lambda row: (row["index"], row["attempt"]))


@pytest.mark.parametrize("suppress", [True, False], ids=["suppressed", "raised"])
@pytest.mark.parametrize("strategy", ["concurrent", "sequential"])
async def test_a_failed_call_is_tried_again_under_the_same_id(
    service: Service, strategy: str, suppress: bool
) -> None:
    arguments = {"key": key(), "failures": 2}
    run = await acted(
        service,
        {"function": "steady", "arguments": arguments},
        strategy=strategy,
        suppress_errors=suppress,
        call_params={"retry_attempts": 3},
    )
    (result,) = run["result"]
    assert (result["output"], result["error"]) == (3, None)
    rows = await attempts_of(service, run)
    assert [(row["attempt"], row["status"]) for row in rows] == [
        (1, "failed"),
        (2, "failed"),
        (3, "completed"),
    ]
    assert {row["call_id"] for row in rows} == {result["call_id"]}
    assert len({row["action_request_id"] for row in rows}) == 1
    assert len({row["action_response_id"] for row in rows}) == 1
    kinds = [message["kind"] for message in await service.messages(run["branch_id"])]
    assert kinds == ["action_request", "action_response"]
    types = [e["type"] for e in await service.events(run["id"]) if e["type"].startswith("TOOL_")]
    tried = ["TOOL_START", "TOOL_ERROR"]
    assert types == ["TOOL_REQUESTED", *tried, *tried, "TOOL_START", "TOOL_RESULT", "TOOL_COMPLETED"]


async def test_the_last_failure_is_the_calls(service: Service) -> None:
    request = {"function": "steady", "arguments": {"key": key(), "failures": 9}}
    run = await acted(service, request, call_params={"retry_attempts": 1})
    (result,) = run["result"]
    assert result["error"] == "ConnectionError: try 2"
    assert [row["status"] for row in await attempts_of(service, run)] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("function", "params", "tries"),
    [("flaky", {}, 1), ("flaky", {"retry_any_tool": True}, 2), ("steady", {}, 2)],
    ids=["a tool that may take effect twice", "the caller insists", "an idempotent tool"],
)
async def test_only_what_may_be_repeated_is(
    service: Service, function: str, params: dict[str, Any], tries: int
) -> None:
    name = key()
    request = {"function": function, "arguments": {"key": name, "failures": 1}}
    await acted(service, request, call_params={"retry_attempts": 1, **params})
    assert CALLS.count(name) == tries


@pytest.mark.parametrize(
    "request_",
    [{"function": "unknown", "arguments": {}}, {"function": "steady", "arguments": {"failures": 1}}],
    ids=["no such tool", "bad arguments"],
)
async def test_what_never_ran_is_not_tried_again(service: Service, request_: dict[str, Any]) -> None:
    run = await acted(service, request_, call_params={"retry_attempts": 3, "retry_any_tool": True})
    (row,) = await attempts_of(service, run)
    assert row["status"] == "failed"


async def test_an_attempt_that_takes_too_long_is_a_recorded_failure(service: Service) -> None:
    request = {"function": "slow_at_first", "arguments": {"key": key()}}
    run = await acted(service, request, call_params={"retry_attempts": 1, "retry_timeout": 0.1})
    assert run["result"][0]["output"] == "in time"
    first, second = await attempts_of(service, run)
    assert (first["status"], first["execution"]["error"]["error"]) == ("failed", "TIMEOUT")
    assert second["status"] == "completed"


async def test_cancelling_ends_the_pause_between_two_attempts(service: Service) -> None:
    branch = await service.branch()
    body = {
        "requests": {"function": "steady", "arguments": {"key": key(), "failures": 9}},
        "call_params": {"retry_attempts": 5, "retry_initial_delay": 600},
    }
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", json=body, headers={"Prefer": "respond-async"}
    )
    run = answer.json()
    async for frame in service.stream("GET", f"/v1/runs/{run['id']}/events"):
        if frame.event == "TOOL_ERROR":
            break
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    run = await service.ended(run["id"])
    assert run["status"] == "cancelled"
    assert [row["status"] for row in await attempts_of(service, run)] == ["failed", "cancelled"]
    requested, answered = await service.messages(branch)
    assert requested["content"]["action_response_id"] == answered["id"]


@pytest.mark.parametrize("strategy", ["concurrent", "sequential"])
async def test_a_cancelled_run_is_no_failed_one_whatever_a_failed_call_means(
    service: Service, strategy: str
) -> None:
    branch = await service.branch()
    requests = [{"function": "forever", "arguments": {}}, {"function": "forever", "arguments": {}}]
    body = {"requests": requests, "strategy": strategy, "suppress_errors": False}
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", json=body, headers={"Prefer": "respond-async"}
    )
    run = answer.json()
    async for frame in service.stream("GET", f"/v1/runs/{run['id']}/events"):
        if frame.event == "TOOL_START":
            break
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    run = await service.ended(run["id"])
    assert (run["status"], run["error"]["code"]) == ("cancelled", "RUN_CANCELLED")
    assert {row["status"] for row in await attempts_of(service, run)} == {"cancelled"}


@pytest.mark.parametrize("strategy", ["concurrent", "sequential"])
async def test_a_kept_failure_neither_ends_the_request_nor_the_others(
    service: Service, strategy: str
) -> None:
    requests = [{"function": "refuse", "arguments": {}}, {"function": "add", "arguments": {"a": 1, "b": 2}}]
    run = await acted(
        service,
        *requests,
        strategy=strategy,
        suppress_errors=False,
        call_params={"return_exceptions": True},
    )
    assert [(r["status"], r["output"]) for r in run["result"]][1] == ("completed", 3)
    assert run["result"][0]["error"] == "ValueError: no"


async def test_calls_begin_no_sooner_after_each_other_than_asked(service: Service) -> None:
    requests = [{"function": "nothing", "arguments": {}}] * 3
    run = await acted(service, *requests, call_params={"throttle_period": 0.2})
    started = [e["ts"] for e in await service.events(run["id"]) if e["type"] == "TOOL_START"]
    assert len(started) == 3
    # Timers may fire a little early.
    assert all(later - sooner >= 150 for sooner, later in itertools.pairwise(started))


async def test_a_preprocessor_changes_what_the_tool_is_given_and_not_the_record(service: Service) -> None:
    text = key()
    run = await acted(service, {"function": "shout", "arguments": {"text": text}})
    assert CALLS[-1] == text.upper()
    (row,) = await attempts_of(service, run)
    assert row["arguments"] == {"text": text}
