"""Context providers: what they add reaches model and conversation, and they hear of the tool calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.adapters.context.python import TIME_LIMIT_S
from app.core.lifecycle import faults
from tests.support import chat_wire
from tests.support.context import TOLD
from tests.support.database import migrated
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

SHELF = {"shelf": {"books": 2, "for": "read"}, "half": "a\ufffdb"}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The service with context providers: some add, some fail, one hangs."""
    async with (
        migrated(postgres) as url,
        running(url, context_provider_modules=("tests.support.context",)) as made,
    ):
        yield made


async def test_what_they_add_is_shown_and_kept(service: Service, model_server: ModelServer) -> None:
    said = [Attempt(chat_wire.text("ok"))]
    branch = await service.branch(chat_model=await served(service, model_server, said))
    await service.operate(branch, instruction="read", context={"a": 1})
    (message,) = model_server.requests[-1].body["messages"]
    text = message["content"]
    assert '## Context\n{"a":1}\n\n## Context from shelf\n{"books":2,"for":"read"}' in text
    instruction, _ = await service.messages(branch)
    assert instruction["content"]["provided"] == SHELF
    assert instruction["content"]["context"] == {"a": 1}
    # The next turn shows the first as it was, and adds to its own.
    await service.operate(branch, instruction="read", context={"a": 1})
    shown = [m["content"] for m in model_server.requests[-1].body["messages"]]
    assert shown == [text, "ok", text]


async def test_they_hear_of_every_call_once(service: Service) -> None:
    calls: list[dict[str, Any]] = [
        {"function": "add", "arguments": {"a": 1, "b": 2}},
        {"function": "refuse", "arguments": {}},
        {"function": "nothing", "arguments": {}},
        {"function": "gone", "arguments": {}},
    ]
    answer = {"value": None, "action_required": True, "action_requests": calls}
    steps = [{"text": json.dumps(answer)}, {"end": "stop"}]
    await service.model(
        "asks", provider="scripted", options={"native_tools": False, "streams": [{"attempts": [steps]}]}
    )
    branch = await service.branch(chat_model="asks")
    run = await service.operate(branch, actions=True, context={}, lifecycle={"retry": None})
    await until(lambda: len(TOLD[run["id"]]) == 2)
    responses = run["result"]["action_responses"]
    assert sorted(name for name, _ in TOLD[run["id"]]) == ["clerk", "shelf"]
    assert [told for _, told in TOLD[run["id"]]] == [responses] * 2
    assert [response["error"] is None for response in responses] == [True, False, True, False]


async def test_without_calls_they_hear_nothing(service: Service) -> None:
    name = await service.scripted("plain", [{"text": "ok"}, {"end": "stop"}])
    run = await service.operate(await service.branch(chat_model=name), actions=True, context={})
    assert run["result"] == "ok"
    assert TOLD[run["id"]] == []


async def test_a_deadline_does_not_wait_for_them(service: Service) -> None:
    name = await service.scripted("late", [{"wait_ms": 60_000}, {"end": "stop"}])
    branch = await service.branch(chat_model=name)
    limits = {"timeout": {"total_ms": 100}, "retry": None}
    run = await service.operate(branch, context={}, guidance="hang", lifecycle=limits)
    assert (run["status"], run["error"]["code"]) == ("failed", faults.DEADLINE.code)
    first, *_, last = await service.events(run["id"])
    assert last["ts"] - first["ts"] < 1_000 * TIME_LIMIT_S, "one of them hangs until its own limit"


async def test_a_run_can_be_cancelled_while_they_think(service: Service) -> None:
    name = await service.scripted("slow", [{"text": "ok"}, {"end": "stop"}])
    branch = await service.branch(chat_model=name)
    run = await service.started(branch, context={}, guidance="hang")
    answer = await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert answer.status_code in (200, 202)
    assert (await service.ended(run["id"]))["status"] == "cancelled"
