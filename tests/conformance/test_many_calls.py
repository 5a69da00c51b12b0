"""Calls of one request: in which order, how many at once, and what the end of one means for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.services.act import MAX_CONCURRENT
from tests.support.acting import begun, call, outputs, pairs_of, refused, rows_of, types_of
from tests.support.conformance_tools import CROWDS, SAID, Crowd
from tests.support.hook_plugins import TOLD
from tests.support.polling import until
from tests.support.service import Service

pytestmark = pytest.mark.anyio

STRATEGIES = pytest.mark.parametrize("strategy", ["concurrent", "sequential"])


async def ended_in_order(service: Service, run: dict[str, Any]) -> list[str]:
    """The functions of the calls, in the order in which they ended."""
    names = {result["call_id"]: result["function"] for result in run["result"]}
    events = await service.events(run["id"])
    return [names[e["meta"]["callId"]] for e in events if e["type"] == "TOOL_COMPLETED"]


async def test_no_requests_give_no_results_and_leave_nothing(service: Service) -> None:
    for strategy in ("concurrent", "sequential"):
        branch = await service.branch()
        answer = await service.http.post(
            f"/v1/branches/{branch}/act", json={"requests": [], "strategy": strategy}
        )
        run = answer.json()
        assert (run["status"], run["result"], run["function_calls"]) == ("completed", [], [])
        assert await types_of(service, run["id"]) == []
        assert await service.messages(branch) == []
        assert TOLD[run["id"]] == []


@pytest.mark.parametrize("body", [{}, {"strategy": "concurrent"}], ids=["unsaid", "said"])
async def test_calls_run_together_unless_it_is_said_and_results_keep_their_order(
    service: Service, body: dict[str, Any]
) -> None:
    branch = await service.branch()
    # The first of them can only end when the second one runs beside it, in spite of holding up its thread.
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", json={"requests": [call("block"), call("unblock")], **body}
    )
    run = answer.json()
    assert outputs(run) == ["let go", "opened"]
    assert [row["index"] for row in await rows_of(service, run["id"])] == [0, 1]
    assert [asked["function"] for asked, _ in await pairs_of(service, branch)] == ["block", "unblock"]


async def test_the_conversation_has_requests_in_their_order_however_they_end(service: Service) -> None:
    branch = await service.branch()
    run = await service.act(branch, call("later", seconds=0.2, value="slow"), call("nothing"), call("refuse"))
    assert (await ended_in_order(service, run))[-1] == "later"
    messages = await service.messages(branch)
    assert [m["kind"] for m in messages] == ["action_request"] * 3 + ["action_response"] * 3
    assert [m["content"]["function"] for m in messages[:3]] == ["later", "nothing", "refuse"]
    assert [asked["function"] for asked, _ in await pairs_of(service, branch)] == [
        "later",
        "nothing",
        "refuse",
    ]
    assert [r["function"] for r in run["result"]] == ["later", "nothing", "refuse"]


async def test_in_a_sequence_each_begins_when_the_one_before_has_ended(service: Service) -> None:
    branch = await service.branch()
    requests = [call("say", text="1"), call("later", seconds=0.05, value="2"), call("say", text="3")]
    run = await service.act(branch, *requests, strategy="sequential")
    assert outputs(run) == ["1", "2", "3"]
    each = ["TOOL_REQUESTED", "TOOL_START", "TOOL_RESULT", "TOOL_COMPLETED"]
    assert await types_of(service, run["id"]) == each * 3
    assert [m["kind"] for m in await service.messages(branch)] == ["action_request", "action_response"] * 3


@pytest.mark.parametrize("strategy", ["parallel", "", 3, None, ["sequential"]])
async def test_another_strategy_is_refused(service: Service, strategy: Any) -> None:
    branch = await service.branch()
    problem = await refused(service, branch, 422, requests=[call("nothing")], strategy=strategy)
    assert [fault["pointer"] for fault in problem["errors"]] == ["/strategy"]
    assert await service.messages(branch) == []


@pytest.mark.parametrize(("asked", "together"), [(None, MAX_CONCURRENT), (3, 3), (1, 1)])
async def test_so_many_calls_run_together_and_no_more(
    service: Service, asked: int | None, together: int
) -> None:
    name, count = f"crowd-{asked}", MAX_CONCURRENT + 5
    crowd = CROWDS[name] = Crowd()
    run = await begun(
        service,
        await service.branch(),
        requests=[call("crowd", name=name)] * count,
        call_params={"max_concurrent": asked},
    )
    await until(lambda: crowd.now >= together)
    rows = await rows_of(service, run["id"])
    assert [row["status"] for row in rows] == ["processing"] * count, "every intent is recorded already"
    crowd.door.set()
    assert (await service.ended(run["id"]))["status"] == "completed"
    assert (crowd.most, crowd.begun) == (together, count), "each is made once"


@STRATEGIES
async def test_a_failure_is_raised_after_the_last_attempt_at_it(service: Service, strategy: str) -> None:
    branch = await service.branch()
    body = {
        "requests": [call("repeated"), call("say", text="a")],
        "strategy": strategy,
        "suppress_errors": False,
        "call_params": {"retry_attempts": 2, "max_concurrent": 1},
    }
    problem = await refused(service, branch, 424, **body)
    rows = await rows_of(service, problem["run_id"])
    assert [(row["attempt"], row["status"]) for row in rows if row["function"] == "repeated"] == [
        (1, "failed"),
        (2, "failed"),
        (3, "failed"),
    ]
    (asked, answered), *others = await pairs_of(service, branch)
    assert (asked["function"], answered["error"]) == ("repeated", "ValueError: broken")
    assert [answered["error"].partition(":")[0] for _, answered in others] == (
        ["CANCELLED"] if strategy == "concurrent" else []
    )
    assert SAID == []


async def test_the_number_of_attempts_has_a_bound(service: Service) -> None:
    body = {"requests": [call("nothing")], "call_params": {"retry_attempts": 11}}
    problem = await refused(service, await service.branch(), 422, **body)
    assert [fault["pointer"] for fault in problem["errors"]] == ["/call_params/retry_attempts"]


async def test_a_failure_that_is_not_suppressed_cancels_the_others_and_records_them(
    service: Service,
) -> None:
    branch = await service.branch()
    body = {
        "requests": [call("forever"), call("refuse"), call("forever"), call("nothing")],
        "suppress_errors": False,
        "call_params": {"max_concurrent": 2},
    }
    problem = await refused(service, branch, 424, **body)
    assert problem["detail"].startswith("refuse: ValueError")
    rows = await rows_of(service, problem["run_id"])
    assert [row["status"] for row in rows] == ["cancelled", "failed", "cancelled", "cancelled"]
    errors = [answered["error"] for _, answered in await pairs_of(service, branch)]
    assert [error.partition(":")[0] for error in errors] == [
        "CANCELLED",
        "ValueError",
        "CANCELLED",
        "CANCELLED",
    ]


@pytest.mark.parametrize("ends", [True, False], ids=["raised", "suppressed"])
async def test_a_sequence_ends_at_a_failure_only_if_that_is_not_suppressed(
    service: Service, ends: bool
) -> None:
    branch = await service.branch()
    body = {
        "requests": [call("say", text="a"), call("refuse"), call("say", text="b")],
        "strategy": "sequential",
        "suppress_errors": not ends,
    }
    answer = await service.http.post(f"/v1/branches/{branch}/act", json=body)
    assert answer.status_code == (424 if ends else 200)
    assert (["a"] if ends else ["a", "b"]) == SAID
    functions = [asked["function"] for asked, _ in await pairs_of(service, branch)]
    assert functions == ["say", "refuse"] + ([] if ends else ["say"])


@STRATEGIES
async def test_each_call_has_its_own_decision_id_record_and_pair(service: Service, strategy: str) -> None:
    branch = await service.branch(
        gate={"rules": [{"when": "function == 'say' && arguments.text == 'b'", "effect": "deny"}]}
    )
    requests = [call("say", text=text) for text in "abc"]
    run = await service.act(branch, *requests, strategy=strategy)
    assert [r["status"] for r in run["result"]] == ["completed", "skipped", "completed"]
    rows = await rows_of(service, run["id"])
    assert [row["gate"]["effect"] for row in rows] == ["allow", "deny", "allow"]
    for members in ("id", "call_id", "action_request_id", "action_response_id"):
        assert len({row[members] for row in rows}) == 3
    assert len(await pairs_of(service, branch)) == 3
    told: Sequence[str] = [str(event.call_id) for name, event in TOLD[run["id"]] if name == "first"]
    assert sorted(told) == sorted([rows[0]["call_id"], rows[2]["call_id"]] * 2)


@STRATEGIES
async def test_the_same_request_twice_is_two_calls(service: Service, strategy: str) -> None:
    run = await service.act(await service.branch(), *[call("say", text="twice")] * 2, strategy=strategy)
    assert SAID == ["twice"] * 2
    assert len({result["call_id"] for result in run["result"]}) == 2
