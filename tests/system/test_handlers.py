"""Handlers in the process: told of every callback in order, and without any power over runs or each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.core.callbacks import CALLBACKS
from tests.support.database import migrated
from tests.support.flows import FLOWS
from tests.support.handlers import TOLD
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The service with handlers: one keeps, one hangs, one raises."""
    async with (
        migrated(postgres) as url,
        running(url, handler_modules=("tests.support.handlers",), handler_timeout_s=0.05) as made,
    ):
        yield made


async def walked(service: Service, name: str) -> tuple[str, list[dict[str, Any]]]:
    """The run of a golden flow, and the callbacks as its log tells them."""
    flow = FLOWS[name]
    models = [f"{name}-{at}" for at in range(len(flow["streams"]))]
    for model, stream in zip(models, flow["streams"], strict=True):
        await service.scripted(model, *stream["attempts"])
    branch = await service.branch(chat_model=models[0])
    run = await service.operate(branch, lifecycle={**flow["options"], "fallbacks": models[1:]})
    page = await service.get(f"/v1/runs/{run['id']}/events?view=callbacks&limit=1000")
    return run["id"], page["data"]


NAMES = [
    "normal",
    "tool_call_in_stream",
    "retry_network",
    "fallback",
    "resume_on_retry",
    "guardrail_violation",
    "drift",
    "timeout_inter",
    "everything_told",
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_handler_is_told_what_the_log_tells_in_its_order(service: Service, name: str) -> None:
    run_id, logged = await walked(service, name)
    await until(lambda: len(TOLD[run_id]) >= len(logged))
    assert [told for told, _ in TOLD[run_id]] == [entry["name"] for entry in logged]
    for (told, args), entry in zip(TOLD[run_id], logged, strict=True):
        if told not in ("on_error", "on_complete", "on_violation", "on_event"):
            assert list(args) == entry["args"]


async def test_an_error_and_a_state_are_objects(service: Service) -> None:
    run_id, logged = await walked(service, "retries_then_fallback")
    await until(lambda: len(TOLD[run_id]) >= len(logged))
    by_name = {name: args for name, args in TOLD[run_id]}
    error, will_retry, will_fall_back = by_name["on_error"]
    told = next(entry["args"] for entry in reversed(logged) if entry["name"] == "on_error")
    assert (error.code, error.category, error.message) == (
        told[0]["code"],
        told[0]["category"],
        told[0]["message"],
    )
    assert (will_retry, will_fall_back) == (False, True) == tuple(told[1:])
    (state,) = by_name["on_complete"]
    assert state["content"] == state.content == FLOWS["retries_then_fallback"]["final_content"]


def test_the_flows_walked_here_fire_all_callbacks_but_those_of_an_abort() -> None:
    fired = {line[0][2:] for name in NAMES for line in FLOWS[name]["expect"] if line[0].startswith("->")}
    assert set(CALLBACKS) - fired == {"on_abort", "on_event"}
