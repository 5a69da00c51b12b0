"""Whoever only looks on cannot change what is recorded, however it fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import handlers, hook_plugins
from tests.support.polling import until
from tests.support.receiver import Receiver, Reply
from tests.support.service import Service

pytestmark = pytest.mark.anyio


def calls(name: str, arguments: str = "{}") -> list[dict[str, Any]]:
    """The steps of a model that asks for one call."""
    return [
        {"text": "Calling. "},
        {"tool_call": {"index": 0, "id": "c", "name": name, "arguments": arguments}},
        {"end": "tool_calls"},
    ]


@pytest.mark.parametrize(
    ("tool", "error"),
    [("unmoved", None), ("breaks_unmoved", "ValueError: broken")],
    ids=["success", "failure"],
)
async def test_neither_hooks_nor_handlers_that_fail_part_the_log_from_the_conversation(
    service: Service, tool: str, error: str | None
) -> None:
    branch = await service.branch(chat_model=await service.scripted(f"asks-{tool}", calls(tool)))
    run = await service.operate(branch, actions=True)
    assert run["status"] == "completed"
    (response,) = run["result"]["action_responses"]
    assert response["error"] == error
    asked, answered = [m for m in await service.messages(branch) if m["kind"].startswith("action")]
    assert asked["content"]["action_response_id"] == answered["id"]
    assert answered["content"]["error"] == error
    (row,) = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    assert row["action_response_id"] == answered["id"]
    assert "TOOL_COMPLETED" in [event["type"] for event in await service.events(run["id"])]
    # All of them were told; the fixture's other handlers hang and raise.
    await until(lambda: "on_complete" in [name for name, _ in handlers.TOLD[run["id"]]])
    assert hook_plugins.points(run["id"], "last")[-1] == ("TOOL_POST" if error is None else "TOOL_ERROR")


async def test_a_receiver_that_refuses_everything_changes_nothing(service: Service) -> None:
    async with Receiver() as receiver:
        receiver.replies["/gone"] = [Reply(500)]
        made = await service.http.post(
            "/v1/webhook-endpoints", json={"url": receiver.url("/gone"), "event_types": ["TOOL_COMPLETED"]}
        )
        assert made.status_code == 201, made.text
        try:
            branch = await service.branch()
            run = await service.act(branch, {"function": "nothing", "arguments": {}})
            await until(lambda: receiver.at("/gone"))
        finally:
            await service.http.delete(f"/v1/webhook-endpoints/{made.json()['id']}")
    assert (run["status"], run["result"][0]["status"]) == ("completed", "completed")
    assert [m["kind"] for m in await service.messages(branch)] == ["action_request", "action_response"]
