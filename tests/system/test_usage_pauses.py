"""What is counted of an answer that its provider interrupted: one attempt, each of its calls once."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.support import cases, messages_wire
from tests.support.heard import ONCE, Heard, hear, served
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service
from tests.support.streams import Stream, on_messages

pytestmark = pytest.mark.anyio

PAUSED, WENT_ON = cases.attempts(cases.load("2-anthropic-stream")["A08"])
"""Each is told to have read 10 tokens and to have made 7."""
PRICE = {"input": 1, "output": 10}
RECORDED = [stream for stream in on_messages() if b'"pause_turn"' in stream.body]


async def heard(service: Service, server: ModelServer, *attempts: Attempt, **lifecycle: Any) -> Heard:
    """What becomes of an answer that comes so."""
    model = await served(service, server, attempts, provider="anthropic", price=PRICE)
    return await hear(service, model, lifecycle={**ONCE, **lifecycle})


async def counted(service: Service, of: Heard) -> list[tuple[Any, ...]]:
    """Place, end, counts, whether they are estimates, and cost of each attempt, which are also the run's."""
    found = (await service.get(f"/v1/runs/{of.run['id']}/attempts"))["data"]
    usage, cost = of.run["usage"], of.run["cost"]
    for name in ("input_tokens", "output_tokens", "reasoning_tokens"):
        assert usage[name] == sum(attempt["usage"][name] or 0 for attempt in found)
    assert Decimal(cost["amount"]) == sum(Decimal(attempt["cost"]) for attempt in found)
    return [
        (
            *(a["fallback_index"], a["attempt"], a["outcome"]),
            *(a["usage"][name] for name in ("input_tokens", "output_tokens", "estimated")),
            a["cost"],
        )
        for a in found
    ]


async def test_both_calls_are_one_attempt_and_each_counts_once(
    service: Service, model_server: ModelServer
) -> None:
    of = await heard(service, model_server, PAUSED, WENT_ON)
    assert of.types.count("STREAM_INIT") == 2
    assert await counted(service, of) == [(0, 1, "completed", 20, 14, False, "0.00016")]
    sums = (await service.get("/v1/usage?group_by=run&limit=1000"))["data"]
    (own,) = (one for one in sums if one["key"] == of.run["id"])
    assert (own["attempts"], own["usage"]) == (1, of.run["usage"])


async def test_only_the_call_without_a_report_is_estimated(
    service: Service, model_server: ModelServer
) -> None:
    begun = messages_wire.block(0, {"type": "text", "text": "x" * 40})
    cut = Attempt([messages_wire.start(input_tokens=30, output_tokens=1), begun], then="reset")
    of = await heard(service, model_server, PAUSED, cut)
    assert of.run["status"] == "failed"
    # Of the second call: 30 that were read, and 40 characters.
    assert await counted(service, of) == [(0, 1, "failed", 40, 17, True, "0.00021")]


async def test_a_second_call_that_is_refused_uses_nothing_and_the_retry_its_own(
    service: Service, model_server: ModelServer
) -> None:
    retry = {"max_retries": 1, "base_delay_ms": 0}
    of = await heard(service, model_server, PAUSED, Attempt(status=503), WENT_ON, retry=retry)
    assert await counted(service, of) == [
        (0, 1, "failed", 10, 7, False, "0.00008"),
        (0, 2, "completed", 10, 7, False, "0.00008"),
    ]


@pytest.mark.parametrize("stream", RECORDED, ids=lambda stream: stream.file.stem)
async def test_a_recorded_pause_counts_what_its_last_report_says(
    service: Service, model_server: ModelServer, stream: Stream
) -> None:
    events = [json.loads(line[5:]) for line in stream.body.decode().split("\n") if line.startswith("data:")]
    (last,) = (event["usage"] for event in events if event["type"] == "message_delta")
    of = await heard(service, model_server, Attempt([stream.body]), WENT_ON)
    ((*place, read, made, estimated, _),) = await counted(service, of)
    assert (place, estimated) == ([0, 1, "completed"], False)
    assert (read, made) == (last["input_tokens"] + 10, last["output_tokens"] + 7)
    thought = last.get("output_tokens_details", {}).get("thinking_tokens", 0)
    assert of.run["usage"]["reasoning_tokens"] == thought
