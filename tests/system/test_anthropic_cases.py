"""Failures from the field on the Messages wire: what a client of the service must get, and what not.

What the provider wants back (A06) and turns that it interrupts (A08) have tests in `test_opaque.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.support import case_tools, cases, messages_wire
from tests.support.database import migrated
from tests.support.heard import ONCE, Heard, hear, served
from tests.support.model_server import Attempt, ModelServer
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

CASES = cases.load("2-anthropic-stream")

WHOLE = ["A01", "A03", "A06", "A09", "A14"]
"""Those in which one attempt is a whole answer."""

REASONS = {"end_turn": "stop", "tool_use": "tool_calls"}

TWO_RETRIES: dict[str, Any] = {"retry": {"attempts": 2, "max_retries": 2, "base_delay_ms": 0}}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The service with the tools that the cases ask for."""
    async with migrated(postgres) as url, running(url, tool_modules=("tests.support.case_tools",)) as made:
        yield made


@pytest.fixture(autouse=True)
def called() -> list[tuple[str, dict[str, object]]]:
    """The tool calls that were carried out during the test."""
    case_tools.CALLED.clear()
    return case_tools.CALLED


class Wire:
    """Asks models on this wire."""

    def __init__(self, service: Service, server: ModelServer) -> None:
        self.service = service
        self._server = server
        self.model = ""

    async def hear(self, attempts: Sequence[Attempt], *, lifecycle: Any = ONCE, **body: Any) -> Heard:
        """What the service makes of these attempts."""
        self.model = await served(self.service, self._server, attempts, provider="anthropic")
        return await hear(self.service, self.model, lifecycle=lifecycle, **body)

    async def case(self, id: str, **more: Any) -> Heard:
        """What it makes of a case."""
        return await self.hear(cases.attempts(CASES[id]), **more)

    @property
    def times(self) -> list[float]:
        """When the model was asked, in seconds."""
        return [request.at for request in self._server.requests if request.model == self.model]

    @property
    def bodies(self) -> list[Any]:
        """What the model was sent."""
        return [request.body for request in self._server.requests if request.model == self.model]


@pytest.fixture
def wire(service: Service, model_server: ModelServer) -> Wire:
    return Wire(service, model_server)


@pytest.mark.parametrize("id", WHOLE)
async def test_a_whole_answer(wire: Wire, id: str, called: list[Any]) -> None:
    expected = CASES[id]["expected"]
    wanted = [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
    heard = await wire.case(id, actions=bool(wanted))
    assert (heard.run["status"], heard.text) == ("completed", expected["text"])
    assert heard.run["finish_reason"] == REASONS[expected["finish_reason"]]
    assert heard.run["finish_reason_raw"] == expected["finish_reason"]
    assert heard.calls == [(call["id"], call["name"], call["arguments"]) for call in expected["tool_calls"]]
    assert sorted(called, key=str) == sorted(wanted, key=str)
    if "usage" in expected:
        usage = heard.run["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (10, 7)
    assert len(wire.bodies) == 1


async def test_a04_an_error_in_the_place_of_an_answer_is_asked_again(wire: Wire) -> None:
    retry = {"max_retries": 2, "base_delay_ms": 100, "strategy": "fixed"}
    heard = await wire.case("A04", lifecycle={"retry": retry})
    assert (heard.run["status"], heard.text, heard.run["attempts"]) == ("completed", "fine", 2)
    assert [heard.types.count(kind) for kind in ("SESSION_START", "RETRY_ATTEMPT")] == [1, 1]
    (pause,) = [event["meta"]["delayMs"] for event in heard.events if event["type"] == "RETRY_ATTEMPT"]
    first, second = wire.times
    assert second - first >= pause / 1000 > 0


async def test_a09_usage_that_nobody_told_is_not_reported(wire: Wire) -> None:
    usage = (await wire.case("A09")).run["usage"]
    if usage is not None:
        # Estimates say that they are; what is not known is never 0.
        assert (usage["reported"], usage["estimated"]) == (False, True)
        assert 0 not in (usage["input_tokens"], usage["output_tokens"])


async def test_a11_an_answer_without_its_end_is_asked_again(wire: Wire) -> None:
    heard = await wire.case("A11")
    assert (heard.code, heard.run["error"]["retryable"]) == ("STREAM_TRUNCATED", True)
    assert (heard.run["partial_text"], heard.messages) == ("Half of a sen", [])
    both = [*cases.attempts(CASES["A11"]), Attempt(messages_wire.text("Half of a sentence."))]
    again = await wire.hear(both, lifecycle=TWO_RETRIES)
    assert (again.run["status"], again.run["result"]) == ("completed", "Half of a sentence.")


async def test_a11_a_reason_to_stop_is_no_end(wire: Wire) -> None:
    *most, last = messages_wire.text("Half of a sen")
    reason = last.partition(b"event: message_stop")[0]
    heard = await wire.hear([Attempt([*most, reason])])
    assert (heard.code, heard.messages) == ("STREAM_TRUNCATED", [])


async def test_a13_two_messages_in_one_body_are_no_answer(wire: Wire, called: list[Any]) -> None:
    heard = await wire.case("A13", actions=True)
    assert (heard.code, heard.run["error"]["retryable"]) == ("PROVIDER_ERROR", True)
    assert (heard.detail["type"], heard.calls, called, heard.messages) == ("spliced", [], [], [])
    again = await wire.hear(
        [*cases.attempts(CASES["A13"]), Attempt(messages_wire.text("Booked."))], lifecycle=TWO_RETRIES
    )
    assert (again.run["status"], again.run["result"], called) == ("completed", "Booked.", [])


# What the wire demands besides


async def test_usage_is_a_total_each_time_and_counts_what_was_cached(wire: Wire) -> None:
    counts = {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 30}
    more = messages_wire.event("message_delta", delta={}, usage={"output_tokens": 20})
    said = messages_wire.text("a")[1:-1]
    attempt = Attempt(
        [messages_wire.start(**counts), *said, more, messages_wire.end("end_turn", {"output_tokens": 60})]
    )
    usage = (await wire.hear([attempt])).run["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (130, 60)


@pytest.mark.parametrize(
    ("kind", "code", "status", "retryable"),
    [
        ("overloaded_error", "PROVIDER_ERROR", 529, True),
        ("api_error", "PROVIDER_ERROR", 500, True),
        ("rate_limit_error", "RATE_LIMITED", 429, True),
        ("invalid_request_error", "PROVIDER_ERROR", 400, False),
        ("authentication_error", "PROVIDER_ERROR", 401, False),
    ],
)
async def test_an_error_is_the_same_before_and_inside_an_answer(
    wire: Wire, kind: str, code: str, status: int, retryable: bool
) -> None:
    inside = Attempt([*messages_wire.text("a")[:3], messages_wire.error(kind, "so it is")])
    words = {"type": "error", "error": {"type": kind, "message": "so it is"}, "request_id": "req_1"}
    before = Attempt([json.dumps(words).encode()], status, "application/json")
    for attempt in (inside, before):
        heard = await wire.hear([attempt])
        assert (heard.code, heard.run["error"]["retryable"]) == (code, retryable)
        assert (heard.detail["status"], heard.detail["type"]) == (status, kind)
        assert "so it is" in heard.run["error"]["message"]


async def test_a_refusal_ends_the_run(wire: Wire) -> None:
    heard = await wire.hear([Attempt(messages_wire.text("I", finish="refusal"))])
    assert (heard.code, heard.messages) == ("MODEL_REFUSAL", [])


async def test_arguments_that_keep_coming_are_progress(wire: Wire) -> None:
    limits = {"initial_token_ms": 5_000, "inter_token_ms": 1_000}
    call = {"type": "tool_use", "id": "toolu_1", "name": "book", "input": {}}
    pieces = ['{"room"', ":", ' "', *"Blue", '"', "}"]
    fragments = [
        part
        for piece in pieces
        for part in (messages_wire.delta(0, "input_json_delta", partial_json=piece), 0.2)
    ]
    whole = [messages_wire.start(), messages_wire.block(0, call), *fragments, messages_wire.end("tool_use")]
    heard = await wire.hear([Attempt(whole)], lifecycle={**ONCE, "timeout": limits}, actions=True)
    assert [call[2] for call in heard.calls] == [{"room": "Blue"}]


async def test_an_answer_goes_on_from_its_text(wire: Wire) -> None:
    cut = Attempt(messages_wire.text("Once upon a time, there")[:-2])
    rest = Attempt(messages_wire.text(" was an otter."))
    lifecycle = {**TWO_RETRIES, "continue_from_last_good_token": True}
    heard = await wire.hear([cut, rest], lifecycle=lifecycle)
    assert heard.run["result"] == "Once upon a time, there was an otter."
    said, told = wire.bodies[-1]["messages"][-2:]
    assert said == {"role": "assistant", "content": [{"type": "text", "text": "Once upon a time, there"}]}
    assert told["role"] == "user", "the models of today refuse a last message of their own"


async def test_a_schema_is_enforced_and_the_answer_held_against_it(wire: Wire) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 2}},
        "required": ["n"],
    }
    heard = await wire.hear([Attempt(messages_wire.text('{"n": 3}'))], response_format=schema)
    assert (heard.run["status"], heard.run["result"]) == ("completed", {"n": 3})
    (body,) = wire.bodies
    sent = body["output_config"]["format"]["schema"]
    assert (sent["properties"]["n"]["type"], sent["additionalProperties"]) == ("integer", False)
    assert "minimum" not in sent["properties"]["n"]
