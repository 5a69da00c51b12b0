"""What a stream's machine asks is always answered, by a value or by an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.adapters.cel import Cel
from app.adapters.guardrails.python import Guardrail, PythonGuardrails
from app.core.lifecycle.effects import Ask
from app.core.lifecycle.inputs import Answer
from app.core.lifecycle.options import RetryOptions
from app.services.decisions import Decisions
from tests.support.ambient import FakeClock

pytestmark = pytest.mark.anyio

QUESTION = {"error": {"code": "NETWORK_ERROR"}, "category": "network", "attempt": 1, "state": {}}


async def says_nothing(text: str, final: bool) -> None:
    """Finds nothing."""


def shouts(text: str, final: bool) -> Any:
    return [{"message": "too loud", "position": text.index("!"), "severity": "warning"}, "again"]


def generates(text: str, final: bool) -> Iterator[str]:
    yield from ("one", "two")


def breaks(text: str, final: bool) -> None:
    raise RuntimeError("out of order")


GUARDRAILS = [
    Guardrail("quiet", says_nothing),
    Guardrail("loud", shouts),
    Guardrail("many", generates),
    Guardrail("broken", breaks),
    Guardrail("odd", lambda text, final: {"severity": "error"}),
    Guardrail("odder", lambda text, final: 42),
]


async def decided(ask: Ask, options: RetryOptions | None = None, more: tuple[Guardrail, ...] = ()) -> Answer:
    expressions = Cel()
    guardrails = PythonGuardrails([*GUARDRAILS, *more], time_limit_s=0.2)
    try:
        decisions = Decisions(expressions, guardrails, FakeClock())
        return await decisions.decide(ask, options or RetryOptions())
    finally:
        guardrails.close()


def asked(name: str) -> Ask:
    return Ask("guardrail", {"rule": name, "text": "hey!", "final": True})


async def test_expressions_are_those_of_the_stream() -> None:
    options = RetryOptions(should_retry="attempt < 1", calculate_delay="250 * (attempt + 1)")
    assert (await decided(Ask("should_retry", QUESTION), options)).value is False
    assert (await decided(Ask("calculate_delay", QUESTION), options)).value == 500


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("quiet", []),
        (
            "loud",
            [
                {"message": "too loud", "position": 3, "severity": "warning", "recoverable": True},
                {"message": "again", "recoverable": True},
            ],
        ),
        ("many", [{"message": "one", "recoverable": True}, {"message": "two", "recoverable": True}]),
    ],
)
async def test_a_guardrail_gives_its_findings(name: str, found: list[dict[str, Any]]) -> None:
    answer = await decided(asked(name))
    assert (answer.value, answer.error) == (found, None)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (asked("broken"), "RuntimeError: out of order"),
        (asked("odd"), "no finding"),
        (asked("odder"), "no finding"),
        (asked("unknown"), "no guardrail 'unknown'"),
        (Ask("should_retry", QUESTION), "no expression"),
        (Ask("weather", {}), "nobody decides weather"),
    ],
)
async def test_a_failure_is_an_answer(ask: Ask, told: str) -> None:
    answer = await decided(ask)
    assert answer.value is None
    assert told in (answer.error or "")


@pytest.mark.parametrize("kind", ["async", "in a thread"])
async def test_a_guardrail_that_hangs_is_given_up(kind: str) -> None:
    let_go = threading.Event()

    async def waits(text: str, final: bool) -> None:
        await asyncio.Event().wait()

    hangs: Callable[[str, bool], Any] = waits if kind == "async" else lambda text, final: let_go.wait(30)
    try:
        answer = await decided(asked("hangs"), more=(Guardrail("hangs", hangs),))
    finally:
        let_go.set()
    assert "no verdict within" in (answer.error or "")
