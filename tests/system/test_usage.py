"""What runs used and cost, over HTTP: every attempt once, however it ended."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.polling import until_true
from tests.support.process import serving
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

PRICE = {"input": "1.5", "output": "10", "cached_input": 0.25}
"""US dollars for a million tokens."""
USED: dict[str, Any] = {"usage": {"input_tokens": 40, "output_tokens": 6}}
COST = Decimal("0.00012")
"""Of `USED`, at `PRICE`."""
GOOD: list[dict[str, Any]] = [{"text": "hello"}, USED, {"end": "stop"}]
RESET: dict[str, Any] = {"error": {"kind": "network", "type": "connection_reset"}}
QUICKLY: dict[str, Any] = {"retry": {"base_delay_ms": 0}}
_numbers = itertools.count()


async def model(
    service: Service, *attempts: list[dict[str, Any]], price: Any = PRICE, streams: Any = None
) -> str:
    """A scripted model; its name."""
    name = f"model_{next(_numbers)}"
    options = {"streams": streams or [{"attempts": list(attempts)}]}
    await service.model(name, provider="scripted", options=options, price=price)
    return name


async def attempts_of(service: Service, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Its attempts, after a look whether their sums are everywhere the same."""
    found: list[dict[str, Any]] = (await service.get(f"/v1/runs/{run['id']}/attempts"))["data"]
    stored = await service.get(f"/v1/runs/{run['id']}")
    assert stored == run
    events = await service.events(run["id"])
    assert events[-1]["meta"]["usage"] == run["usage"]
    assert len([e for e in events if e["type"] == "STREAM_INIT"]) == len(found)
    usage, cost = run["usage"], run["cost"]
    for count in ("input_tokens", "output_tokens", "cached_input_tokens"):
        assert usage[count] == sum(attempt["usage"][count] or 0 for attempt in found)
    assert usage["estimated"] == any(attempt["usage"]["estimated"] for attempt in found)
    costs = [Decimal(attempt["cost"]) for attempt in found if attempt["cost"] is not None]
    if costs:
        assert Decimal(cost["amount"]) == sum(costs)
        assert cost["unpriced_attempts"] == len(found) - len(costs)
    else:
        assert cost is None
    sums = (await service.get("/v1/usage?group_by=run&limit=1000"))["data"]
    (own,) = (one for one in sums if one["key"] == run["id"])
    assert (own["usage"], own["cost"], own["attempts"]) == (usage, cost, len(found))
    return found


def shown(attempts: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Place, end and counts of each."""
    return [
        (a["stream"], a["fallback_index"], a["attempt"], a["outcome"], *list(a["usage"].values())[:2])
        for a in attempts
    ]


async def test_an_answer_costs_what_its_server_reports(service: Service) -> None:
    name = await model(service, GOOD)
    run = await service.operate(await service.branch(chat_model=name))
    (attempt,) = await attempts_of(service, run)
    assert shown([attempt]) == [(0, 0, 1, "completed", 40, 6)]
    assert (attempt["model"], attempt["provider"], attempt["wire_model"]) == (name, "scripted", name)
    assert (attempt["code"], attempt["purpose"]) == (None, "main")
    assert (run["usage"]["reported"], run["usage"]["estimated"]) == (True, False)
    assert run["cost"] == {"amount": "0.00012", "currency": "USD", "unpriced_attempts": 0}


async def test_parts_have_prices_of_their_own(service: Service) -> None:
    parts = {"cached_input_tokens": 20, "cache_write_tokens": 10, "reasoning_tokens": 4}
    used = {"usage": {"input_tokens": 40, "output_tokens": 6, **parts}}
    price = {"input": 1, "output": 10, "cached_input": "0.1", "cache_write": "1.25", "reasoning": 5}
    name = await model(service, [{"text": "hello"}, used, {"end": "stop"}], price=price)
    run = await service.operate(await service.branch(chat_model=name))
    (attempt,) = await attempts_of(service, run)
    assert {part: attempt["usage"][part] for part in parts} == parts
    assert {part: run["usage"][part] for part in parts} == parts
    # 10 plain, 20 cached, 10 written; 2 said, 4 thought.
    assert run["cost"]["amount"] == "0.0000645"


async def test_retries_and_fallbacks_each_cost_their_own(service: Service) -> None:
    first = await model(service, [{"text": "eight ch"}, RESET], [{"text": "two"}, USED, RESET])
    second = await model(service, [{"error": {"kind": "status", "status": 401}}], price=None)
    third = await model(service, GOOD, price={"input": 100, "output": 0})
    lifecycle = {"retry": {"base_delay_ms": 0, "max_retries": 1}, "fallbacks": [second, third]}
    run = await service.operate(await service.branch(chat_model=first), lifecycle=lifecycle)
    attempts = await attempts_of(service, run)
    assert shown(attempts) == [
        (0, 0, 1, "failed", 1, 2),
        (0, 0, 2, "failed", 40, 6),
        (0, 1, 1, "failed", 0, 0),
        (0, 2, 1, "completed", 40, 6),
    ]
    assert [a["code"] for a in attempts] == ["NETWORK_ERROR", "NETWORK_ERROR", "PROVIDER_ERROR", None]
    assert [a["cost"] for a in attempts] == ["0.0000215", "0.00012", None, "0.004"]
    assert [a["usage"]["estimated"] for a in attempts] == [True, True, False, False]
    assert run["cost"]["unpriced_attempts"] == 1


async def test_an_attempt_that_was_aborted_is_estimated(service: Service) -> None:
    slow = await model(service, [{"text": "0123456789"}, {"wait_ms": 600_000}, {"end": "stop"}])
    branch = await service.branch(chat_model=slow, system="12345678")
    started = await service.started(branch, instruction="1234", lifecycle={"timeout": None})
    async for frame in service.stream("GET", f"/v1/runs/{started['id']}/events"):
        if frame.event == "TOKEN":
            await service.http.post(f"/v1/runs/{started['id']}/cancel")
    run = await service.get(f"/v1/runs/{started['id']}")
    (attempt,) = await attempts_of(service, run)
    assert (run["status"], attempt["outcome"], attempt["code"]) == ("cancelled", "aborted", "STREAM_ABORTED")
    # Twelve characters were asked, ten were said.
    assert (attempt["usage"]["input_tokens"], attempt["usage"]["output_tokens"]) == (3, 3)
    assert (attempt["usage"]["estimated"], attempt["usage"]["reported"]) == (True, False)
    assert attempt["cost"] == "0.0000345"


async def test_repairs_count_on_the_model_that_mends(service: Service) -> None:
    wrong = [{"text": "no JSON"}, USED, {"end": "stop"}]
    right = [{"text": '{"a": 1}'}, USED, {"end": "stop"}]
    asked = await model(service, wrong)
    mends = await model(service, streams=[{"attempts": [[RESET], wrong]}, {"attempts": [right]}])
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    run = await service.operate(
        await service.branch(chat_model=asked, parse_model=mends), response_format=schema, lifecycle=QUICKLY
    )
    assert run["result"] == {"a": 1}
    attempts = await attempts_of(service, run)
    assert [(a["stream"], a["purpose"], a["attempt"], a["model"]) for a in attempts] == [
        (0, "main", 1, asked),
        (1, "repair", 1, mends),
        (1, "repair", 2, mends),
        (2, "repair", 1, mends),
    ]
    assert (run["usage"]["input_tokens"], run["attempts"]) == (120, 4)


async def test_every_voter_counts(service: Service) -> None:
    names = [await model(service, GOOD), await model(service, GOOD, price=None), await model(service, GOOD)]
    run = await service.consensus(names)
    attempts = await attempts_of(service, run)
    assert sorted((a["stream"], a["purpose"], a["model"]) for a in attempts) == [
        (at, "voter", name) for at, name in enumerate(names)
    ]
    assert run["usage"]["input_tokens"] == 120
    assert run["cost"] == {"amount": "0.00024", "currency": "USD", "unpriced_attempts": 1}


async def test_a_run_that_waited_is_not_counted_twice(service: Service) -> None:
    call = {"index": 0, "id": "call_1", "name": "add", "arguments": '{"a": 1, "b": 2}'}
    name = await model(service, [{"tool_call": call}, USED, {"end": "tool_calls"}])
    branch = await service.branch(chat_model=name, gate={"default": "escalate"})
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "go", "actions": True, "tools": ["add"]}
    )
    assert (answer.status_code, answer.json()["cost"]["amount"]) == (202, "0.00012")
    (approval,) = (await service.get(f"/v1/approvals?run_id={answer.json()['id']}"))["data"]
    decided = await service.http.post(
        f"/v1/function-calls/{approval['function_call_id']}/decision", json={"decision": "approve"}
    )
    assert decided.status_code == 200
    run = await service.ended(answer.json()["id"])
    assert (run["status"], len(await attempts_of(service, run))) == ("completed", 1)
    assert run["cost"]["amount"] == "0.00012"


async def test_a_run_that_asked_no_model_used_nothing(service: Service) -> None:
    run = await service.act(await service.branch(), {"function": "add", "arguments": {"a": 1, "b": 2}})
    assert (run["usage"], run["cost"]) == (None, None)
    assert (await service.get(f"/v1/runs/{run['id']}/attempts"))["data"] == []


async def test_the_price_of_the_time_is_what_counts(service: Service) -> None:
    name = await model(service, GOOD)
    branch = await service.branch(chat_model=name)
    before = await service.operate(branch)
    options = {"streams": [{"attempts": [GOOD]}]}
    await service.model(name, provider="scripted", options=options, price={"input": 0, "output": 0})
    after = await service.operate(branch)
    assert (await service.get(f"/v1/runs/{before['id']}"))["cost"]["amount"] == "0.00012"
    assert after["cost"]["amount"] == "0"
    (whole,) = (await service.get(f"/v1/usage?branch_id={branch}"))["data"]
    assert (whole["runs"], whole["usage"]["input_tokens"], whole["cost"]["amount"]) == (2, 80, "0.00012")


async def test_prices_of_the_settings_are_for_models_that_have_none(database_url: str) -> None:
    def priced(model: str, **price: Any) -> dict[str, Any]:
        return {"provider": "scripted", "model": model, "output": 0, **price}

    streams = {"streams": [{"attempts": [GOOD]}]}
    offered = {
        "dear": {
            "provider": "scripted",
            "model": "x",
            "options": streams,
            "price": {"input": 9, "output": 0},
        },
        "listed": {"provider": "scripted", "model": "x", "options": streams},
    }
    prices = [priced("x", input=0.1, as_of="2026-11-30", source="a letter"), priced("x", input=7)]
    async with running(database_url, models=offered, prices=prices) as service:
        await service.model("mine", provider="scripted", options=streams)
        await service.http.put(
            "/v1/models/mine", json={"provider": "scripted", "model": "x", "options": streams}
        )
        costs = {}
        for name in ("dear", "listed", "mine"):
            run = await service.operate(await service.branch(chat_model=name))
            costs[name] = run["cost"]["amount"]
        assert costs == {"dear": "0.00036", "listed": "0.000004", "mine": "0.000004"}
        shown = {one["name"]: one["price"] for one in (await service.get("/v1/models"))["data"]}
        assert (shown["dear"]["input"], shown["listed"], shown["mine"]) == ("9", None, None)


async def test_what_is_known_of_a_lost_attempt_counts(database_url: str, tmp_path: Path) -> None:
    script = [
        [{"text": "12345678"}, USED, RESET],
        [{"text": "0123"}, {"text": "45"}, {"wait_ms": 600_000}],
        GOOD,
    ]
    body = {
        "provider": "scripted",
        "model": "wire",
        "options": {"streams": [{"attempts": script}]},
        "lifecycle": {"timeout": None, **QUICKLY},
        "price": PRICE,
    }
    async with serving(database_url, tmp_path) as first:
        await first.http.put("/v1/models/endless", json=body)
        made = await first.http.post("/v1/branches", json={"chat_model": "endless"})
        run_id = await first.started(made.json()["id"], "operate", {"instruction": "1234567890"})
        voted = await first.posted("/v1/consensus", {"instruction": "vote", "voters": ["endless"] * 2})

        async def said() -> bool:
            text = (await first.http.get(f"/v1/runs/{run_id}/text")).json()["text"]
            events = (await first.http.get(f"/v1/runs/{voted}/events?types=ATTEMPT_START")).json()["data"]
            return bool(text == "012345" and len(events) == 2)

        await until_true(said)
        first.process.kill()
        await first.process.wait()
    async with serving(database_url, tmp_path) as second:
        await second.follow(run_id, "")
        run = (await second.http.get(f"/v1/runs/{run_id}")).json()
        attempts = (await second.http.get(f"/v1/runs/{run_id}/attempts")).json()["data"]
        assert shown(attempts) == [
            (0, 0, 1, "failed", 40, 6),
            (0, 0, 2, "lost", 3, 2),
            (0, 0, 3, "completed", 40, 6),
        ]
        assert (attempts[1]["model"], attempts[1]["wire_model"]) == ("endless", "wire")
        assert [a["cost"] for a in attempts] == ["0.00012", "0.0000245", "0.00012"]
        assert (run["status"], run["cost"]["amount"]) == ("completed", "0.0002645")
        assert (run["usage"]["input_tokens"], run["usage"]["estimated"]) == (83, True)
        await second.follow(voted, "")
        attempts = (await second.http.get(f"/v1/runs/{voted}/attempts")).json()["data"]
        assert sorted((a["stream"], a["purpose"], a["outcome"]) for a in attempts) == [
            (at, "voter", outcome) for at in (0, 1) for outcome in ("completed", "failed", "lost")
        ]


@pytest.mark.parametrize(
    ("query", "status", "parameter"),
    [
        ("from=2026-02-02&to=2026-02-01", 422, "from"),
        ("from=2025-01-01&to=2026-02-01", 422, "from"),
        ("to=tomorrow", 422, "to"),
        ("from=1767225600", 422, "from"),
        ("group_by=hour", 422, "group_by"),
        ("group_by=day&after=x", 400, "after"),
        ("group_by=run&after=x", 400, "after"),
        ("group_by=model&after=%20", 400, "after"),
        ("after=x", 400, "after"),
        ("since=2026-01-01", 422, "since"),
    ],
)
async def test_what_cannot_be_summed_is_refused(
    service: Service, query: str, status: int, parameter: str
) -> None:
    answer = await service.http.get(f"/v1/usage?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["parameter"]) == (status, parameter)


async def test_sums_come_in_pages(database_url: str) -> None:
    async with running(database_url) as service:
        names = sorted([await model(service, GOOD) for _ in range(3)])
        for name in names:
            await service.operate(await service.branch(chat_model=name))
        assert (await service.get("/v1/usage?from=2020-01-01&to=2020-01-31"))["data"] == []
        seen: list[str] = []
        path: str | None = "/v1/usage?group_by=model&limit=1"
        while path is not None:
            answer = await service.http.get(path)
            seen += [one["key"] for one in answer.json()["data"]]
            path = answer.links["next"]["url"] if answer.json()["has_more"] else None
        assert seen == names
        metrics = (await service.http.get("/metrics")).text
        assert "branchline_model_attempts_total 3.0" in metrics
        assert "branchline_model_input_tokens_total 120.0" in metrics
        assert "branchline_model_output_tokens_total 18.0" in metrics
        (day,) = (await service.get("/v1/usage?group_by=day"))["data"]
        assert (day["runs"], day["attempts"], day["cost"]["amount"]) == (3, 3, "0.00036")
