"""Models that are held to their limits, seen over HTTP and by the model server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.core.operate.middle import MIDDLE_NAMES
from tests.support import chat_wire
from tests.support.heard import hear, served
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until, until_true
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

GOOD = Attempt(chat_wire.text("fine"))
BAD = Attempt([b"{}"], status=500, content_type="application/json", framing="length")
SLOW = replace(GOOD, open_wait_s=30.0)
PATIENT: dict[str, Any] = {"retry": None, "timeout": None}


async def condition(service: Service, model: str) -> dict[str, Any]:
    """Of a model, as a client sees it."""
    answer = await service.http.get(f"/v1/models/{model}")
    return dict(answer.json()["condition"] or {})


async def start(service: Service, model: str) -> str:
    """A run that is not waited for, and waits itself as long as it takes; its id."""
    branch = await service.branch(chat_model=model)
    return str((await service.started(branch, lifecycle=PATIENT))["id"])


async def test_so_many_are_under_way_at_once(service: Service) -> None:
    async with ModelServer() as server:
        model = await served(service, server, [replace(GOOD, open_wait_s=0.1)], limits={"concurrency": 2})
        heard = await asyncio.gather(*(hear(service, model, lifecycle=PATIENT) for _ in range(6)))
        assert [h.run["status"] for h in heard] == ["completed"] * 6
        # Two by two: a third one was never taken before one of its two forerunners had been answered.
        times = sorted(request.at for request in server.requests)
        assert all(later - earlier >= 0.1 for earlier, later in zip(times, times[2:], strict=False))
        found = await condition(service, model)
        assert (found["under_way"], found["waiting"], found["circuit"]) == (0, 0, None)


@pytest.mark.parametrize("middle", MIDDLE_NAMES)
async def test_waiting_for_a_turn_does_not_count_against_the_model(service: Service, middle: str) -> None:
    async with ModelServer() as server:
        model = await served(
            service, server, [replace(GOOD, open_wait_s=2.0), GOOD], limits={"concurrency": 1}
        )
        first = await start(service, model)
        await until(lambda: server.requests)
        hasty = {"retry": None, "timeout": {"initial_token_ms": 1_500}}
        second = await hear(service, model, lifecycle=hasty, middle=middle)
        assert second.run["status"] == "completed"
        early, late = (request.at for request in server.requests)
        assert late - early >= 2.0
        assert (await service.ended(first))["status"] == "completed"


async def test_a_model_whose_messages_are_collected_waits_for_its_turn_likewise(service: Service) -> None:
    async with ModelServer() as server:
        model = await served(
            service, server, [replace(GOOD, open_wait_s=2.0), GOOD], limits={"concurrency": 1}
        )
        first = await start(service, model)
        await until(lambda: server.requests)
        limit = {"retry": None, "timeout": {"initial_token_ms": 1_500}}
        second = await hear(service, model, lifecycle=limit, middle="run_and_collect")
        assert second.run["status"] == "completed"
        assert (await service.ended(first))["status"] == "completed"


async def test_a_run_that_waits_is_cancelled_and_takes_no_turn(service: Service) -> None:
    async with ModelServer() as server:
        model = await served(service, server, [SLOW, GOOD], limits={"concurrency": 1})
        first, second = await start(service, model), await start(service, model)

        async def one_waits() -> bool:
            found = await condition(service, model)
            return (found["under_way"], found["waiting"]) == (1, 1)

        await until_true(one_waits)
        for run in (second, first):
            assert (await service.http.post(f"/v1/runs/{run}/cancel")).status_code < 300

        async def nobody_is_left() -> bool:
            found = await condition(service, model)
            return (found["under_way"], found["waiting"]) == (0, 0)

        await until_true(nobody_is_left)
        assert len(server.requests) == 1
        assert (await hear(service, model)).run["status"] == "completed"


async def test_who_gets_no_turn_falls_back_without_a_retry(service: Service) -> None:
    async with ModelServer() as server:
        full = await served(service, server, [SLOW], limits={"concurrency": 1, "wait_ms": 0})
        other = await served(service, server, [GOOD])
        run = await start(service, full)
        await until(lambda: server.requests)
        heard = await hear(service, full, lifecycle={"fallbacks": [other]})
        assert (heard.run["status"], heard.run["model"]) == ("completed", other)
        assert "RETRY_START" not in heard.types
        alone = await hear(service, full)
        assert (alone.code, alone.detail["type"]) == ("RATE_LIMITED", "limit_reached")
        assert len(server.requests) == 2
        await service.http.post(f"/v1/runs/{run}/cancel")


@pytest.mark.parametrize("bad", [BAD, SLOW], ids=["refuses", "says nothing"])
async def test_a_model_that_keeps_failing_is_left_alone_and_asked_again_later(
    service: Service, bad: Attempt
) -> None:
    async with ModelServer() as server:
        breaker = {"failures": 3, "cooldown_ms": 3_000}
        model = await served(service, server, [bad], limits={"breaker": breaker})
        hasty = {"retry": None, "timeout": {"initial_token_ms": 50}}
        for _ in range(3):
            assert (await hear(service, model, lifecycle=hasty)).run["status"] == "failed"
        found = await condition(service, model)
        assert (found["circuit"], found["failures"]) == ("open", 3)
        asked = len(server.requests)
        refused = await hear(service, model, lifecycle=hasty)
        assert (refused.code, refused.detail["type"]) == ("PROVIDER_ERROR", "circuit_open")
        assert len(server.requests) == asked
        server.scripts[model] = [GOOD]

        async def answers() -> bool:
            return bool((await hear(service, model)).run["status"] == "completed")

        await until_true(answers)
        assert (await condition(service, model))["circuit"] == "closed"
        assert len(server.requests) == asked + 1


async def test_a_model_that_answers_at_length_is_back_when_its_answer_begins(service: Service) -> None:
    async with ModelServer() as server:
        first, *rest = chat_wire.text("fine")
        long = Attempt([first, 30.0, *rest])
        breaker = {"failures": 1, "cooldown_ms": 1}
        model = await served(service, server, [BAD, long, GOOD], limits={"breaker": breaker})
        assert (await hear(service, model)).run["status"] == "failed"
        run = await start(service, model)

        async def is_closed() -> bool:
            return bool((await condition(service, model))["circuit"] == "closed")

        await until_true(is_closed)
        assert (await hear(service, model)).run["status"] == "completed"
        await service.http.post(f"/v1/runs/{run}/cancel")


async def test_an_open_circuit_sends_runs_to_the_next_model_at_once(service: Service) -> None:
    async with ModelServer() as server:
        breaker = {"failures": 1, "cooldown_ms": 600_000}
        model = await served(service, server, [BAD], limits={"breaker": breaker})
        other = await served(service, server, [GOOD])
        lifecycle = {"retry": {"attempts": 3, "max_retries": 5, "base_delay_ms": 0}, "fallbacks": [other]}
        for _ in range(3):
            heard = await hear(service, model, lifecycle=lifecycle)
            assert (heard.run["status"], heard.run["model"]) == ("completed", other)
        assert [request.model for request in server.requests].count(model) == 1


async def test_a_server_that_asks_for_a_pause_gets_it_from_everybody(service: Service) -> None:
    async with ModelServer() as server:
        full = Attempt([b"{}"], 429, "application/json", {"retry-after": "1"}, framing="length")
        model = await served(service, server, [full, GOOD], limits={})
        assert (await hear(service, model)).code == "RATE_LIMITED"
        assert (await hear(service, model)).run["status"] == "completed"
        first, second = (request.at for request in server.requests)
        assert second - first >= 1.0


async def test_tokens_are_counted_and_what_is_over_waits(service: Service) -> None:
    async with ModelServer() as server:
        counts = chat_wire.event({"choices": [], "usage": {"prompt_tokens": 70, "completion_tokens": 30}})
        used = [*chat_wire.text("fine")[:-1], counts, chat_wire.DONE]
        limits = {"tokens_per_minute": 99, "wait_ms": 0}
        model = await served(service, server, [Attempt(used)], limits=limits)
        assert (await hear(service, model)).run["status"] == "completed"
        assert (await hear(service, model)).code == "RATE_LIMITED"
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("limits", "pointer"),
    [
        ({"concurrency": 0}, "/limits/concurrency"),
        ({"requests_per_minute": 1.5}, "/limits/requests_per_minute"),
        ({"wait_ms": -1}, "/limits/wait_ms"),
        ({"breaker": {"failures": 0}}, "/limits/breaker/failures"),
        ({"requests": 1}, "/limits/requests"),
    ],
)
async def test_bad_limits_are_refused(service: Service, limits: dict[str, Any], pointer: str) -> None:
    body = {"provider": "openai", "model": "m", "limits": limits}
    answer = await service.http.put("/v1/models/m", json=body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


async def test_limits_are_kept_and_shown(service: Service) -> None:
    limits = {"concurrency": 8, "wait_ms": 5, "breaker": {"failures": 5, "cooldown_ms": 1_000}}
    await service.model("m", provider="openai", limits=limits)
    found = (await service.http.get("/v1/models/m")).json()
    assert (found["limits"], found["condition"]) == (limits, None)


async def test_who_has_no_patience_closes_a_model_of_the_operators_to_nobody(database_url: str) -> None:
    async with ModelServer({"m": [SLOW, GOOD]}) as server:
        model = {"provider": "openai", "model": "m", "base_url": server.base_url}
        models = {"all": {**model, "limits": {"breaker": {"failures": 1}}}}
        async with running(database_url, models=models) as service:
            hasty = {"retry": None, "timeout": {"initial_token_ms": 50}}
            assert (await hear(service, "all", lifecycle=hasty)).code == "INITIAL_TOKEN_TIMEOUT"
            assert (await condition(service, "all"))["circuit"] == "closed"
            assert (await hear(service, "all")).run["status"] == "completed"
