"""Telling handlers: everything in order, and a bad one harms nobody but itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from app.adapters.handlers.declare import CallbackError, CallbackRun, Handlers, methods_of
from app.adapters.handlers.python import PythonHandlers
from app.core.events.base import Callback, Event
from app.core.events.retry import RetryAttempt
from app.core.events.session import Complete, Error, SessionStart
from app.core.record import Entry, TokenBlock
from app.ports.storage import RunRecord
from app.services.entries import entry_of
from tests.support.polling import until

pytestmark = pytest.mark.anyio

PROJECT, BRANCH = UUID(int=1), UUID(int=2)


def run_of(number: int = 5) -> RunRecord:
    now = datetime.now(UTC)
    return RunRecord(
        UUID(int=number), PROJECT, BRANCH, "operate", "running", "{}", now, context='{"order":1}'
    )


def fired(seq: int, name: str, *args: Any) -> Entry:
    """An event with one callback."""
    event: Event = RetryAttempt(1, "network", 0, 3)
    return entry_of(event.then(Callback(name, args)), seq, seq, 0, 1, 0)


def retries(count: int, first: int = 1) -> list[Entry]:
    return [fired(seq, "on_retry", seq, "network") for seq in range(first, first + count)]


@asynccontextmanager
async def telling(
    *handlers: Any, timeout_s: float = 10, queue: int = 10_000
) -> AsyncIterator[PythonHandlers]:
    """Handlers at work."""
    made = PythonHandlers(
        [(type(handler).__name__, methods_of(handler)) for handler in handlers],
        timeout_s=timeout_s,
        queue=queue,
    )
    working = asyncio.create_task(made.work())
    yield made
    working.cancel()
    await asyncio.wait([working])


def recording(told: list[Any], *names: str) -> Handlers:
    """A handler that notes the arguments of callbacks."""

    def note(*args: Any) -> None:
        told.append(args)

    return Handlers(**{name: note for name in names})


async def test_callbacks_come_in_order_to_plain_and_async_functions() -> None:
    plain: list[Any] = []
    later: list[Any] = []

    async def on_retry(attempt: int, reason: str) -> None:
        await asyncio.sleep(0)
        later.append((attempt, reason))

    async with telling(recording(plain, "on_retry"), Handlers(on_retry=on_retry)) as handlers:
        for number in (5, 6):
            handlers.heard(run_of(number), retries(50), False)
            handlers.heard(run_of(number), retries(50, first=51), True)
        await handlers.drain(10)
        assert plain == later == [(seq, "network") for seq in range(1, 101)] * 2


async def test_the_arguments_are_those_of_the_signatures() -> None:
    told: dict[str, Any] = {}

    class Everything:
        """Notes what it is told."""

        def on_start(self, attempt: int, is_retry: bool, is_fallback: bool, run: CallbackRun) -> None:
            told["start"] = (attempt, is_retry, is_fallback, run)

        def on_error(self, error: CallbackError, will_retry: bool, will_fallback: bool) -> None:
            told["error"] = (error.code, error.message, error.category, error.retryable, will_retry)

        def on_violation(self, violation: Any) -> None:
            told["violation"] = (violation.message, violation["rule"])

        def on_complete(self, state: Any) -> None:
            told["complete"] = (state.token_count, state["content"])

        def on_token(self, text: str) -> None:
            told.setdefault("text", []).append(text)

        async def on_event(self, event: Any) -> None:
            told.setdefault("events", []).append(event.type)

    error = {"code": "NETWORK_ERROR", "message": "gone", "category": "network", "retryable": True}
    event = Error("gone", "NETWORK_ERROR", "NETWORK_ERROR", "network", "retry", {})
    state = {"content": None, "tokenCount": 2}
    entries: Sequence[Entry] = [
        entry_of(
            SessionStart(1, False, False, "main").then(Callback("on_start", (1, False, False))), 1, 7, 0, 1, 0
        ),
        TokenBlock(2, 8, 0, 1, 0, ["a", "b"], [0, 0]),
        entry_of(event.then(Callback("on_error", (error, True, False))), 4, 9, 0, 1, 0),
        fired(5, "on_violation", {"message": "no", "rule": "json"}),
        entry_of(Complete(2, 2, state).then(Callback("on_complete", (state,))), 6, 9, 0, 1, 0),
    ]
    async with telling(Everything()) as handlers:
        handlers.heard(run_of(), entries, True)
        await handlers.drain(10)
    *flags, run = told["start"]
    assert flags == [1, False, False]
    assert (run.run_id, run.project_id, run.branch_id) == (UUID(int=5), PROJECT, BRANCH)
    assert (run.attempt, run.fallback_index, run.seq, run.ts, run.context) == (1, 0, 1, 7, {"order": 1})
    assert told["error"] == ("NETWORK_ERROR", "gone", "network", True, True)
    assert told["violation"] == ("no", "json")
    assert told["complete"] == (2, None)
    assert told["text"] == ["a", "b"]
    assert told["events"] == ["token", "token", "complete"]


async def test_a_handler_that_raises_whatever_it_raises_goes_on() -> None:
    told: list[int] = []

    def plain(attempt: int, reason: str) -> None:
        told.append(attempt)
        raise [ValueError, SystemExit, StopIteration, KeyboardInterrupt][attempt % 4]("no")

    async def later(attempt: int, reason: str) -> None:
        told.append(attempt)
        raise [ValueError, SystemExit, asyncio.CancelledError, KeyboardInterrupt][attempt % 4]("no")

    async with telling(Handlers(on_retry=plain), Handlers(on_retry=later)) as handlers:
        handlers.heard(run_of(), retries(8), False)
        await handlers.drain(10)
        assert sorted(told) == sorted([*range(1, 9)] * 2)
        assert handlers.failed == 8 + 6  # an async one that cancels itself has not failed


async def test_a_handler_that_hangs_holds_up_nobody_but_itself() -> None:
    release = threading.Event()
    stuck: list[int] = []
    told: list[Any] = []

    def hang(attempt: int, reason: str) -> None:
        release.wait(30)
        stuck.append(attempt)

    async with telling(
        Handlers(on_retry=hang), recording(told, "on_retry"), timeout_s=0.02, queue=10
    ) as handlers:
        for count in range(10, 60, 10):
            handlers.heard(run_of(), retries(10), False)
            await until(lambda count=count: len(told) == count)  # type: ignore[misc]
            await until(lambda: handlers.late == 1)
        # One is being called, the next one is held until its thread is free, and ten wait.
        assert handlers.dropped == 50 - 12
        release.set()
        await handlers.drain(10)
        assert stuck == [*range(1, 11), 1, 2]


async def test_an_async_call_that_takes_too_long_is_left_even_if_it_will_not_be_cancelled() -> None:
    told: list[int] = []
    release = asyncio.Event()

    async def stubborn(attempt: int, reason: str) -> None:
        told.append(attempt)
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with telling(Handlers(on_retry=stubborn), timeout_s=0.01) as handlers:
        handlers.heard(run_of(), retries(3), False)
        await handlers.drain(10)
        assert told == [1, 2, 3]
        assert handlers.late == 3
        release.set()


async def test_handlers_hear_only_what_they_have_a_method_for() -> None:
    told: list[Any] = []
    async with telling(recording(told, "on_start")) as handlers:
        handlers.heard(run_of(), [TokenBlock(1, 8, 0, 1, 0, ["a"] * 256, [0] * 256)], False)
        handlers.heard(run_of(), [fired(257, "on_start", 1, False, False)], True)
        await handlers.drain(10)
    assert told == [(1, False, False)]


async def test_what_a_handler_does_to_its_arguments_is_its_own_affair() -> None:
    told: list[Any] = []

    def change(name: str, id: str, args: dict[str, Any]) -> None:
        args.clear()

    async with telling(Handlers(on_tool_call=change), recording(told, "on_tool_call")) as handlers:
        handlers.heard(run_of(), [fired(1, "on_tool_call", "add", "c1", {"a": 1})], False)
        await handlers.drain(10)
    assert told == [("add", "c1", {"a": 1})]
