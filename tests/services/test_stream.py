"""The driver of one model stream: whose bug it is, and limits that come nearer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from app.adapters.ambient import SystemClock
from app.core.chunks import Chunk, TextDelta
from app.core.lifecycle.inputs import Begin
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import NO_RETRIES, NO_TIMEOUTS, LifecycleOptions, TimeoutOptions
from app.core.record import TokenBlock
from app.ports.ambient import Clock
from app.ports.provider import Held
from app.ports.storage import RunRecord
from app.services.execution import Execution
from app.services.feed import Feed
from app.services.run_log import RunLog
from app.services.stream import ModelStream, NotTaken, StreamDriver
from tests.support.ambient import CountingIds

pytestmark = pytest.mark.anyio


def driver_of(
    stream: ModelStream,
    timeout: TimeoutOptions = NO_TIMEOUTS,
    clock: Clock | None = None,
    stopped: str | None = None,
    feed: Feed | None = None,
    touched: Callable[[RunLog, bool], None] = lambda log, urgent: None,
) -> tuple[StreamDriver, Sequence[Any]]:
    """A driver over this stream, and the first effects of its machine; `stopped` says who wants its end."""
    clock, ids = clock or SystemClock(), CountingIds()
    options = LifecycleOptions(timeout=timeout, retry=NO_RETRIES)
    machine = StreamMachine(options, models=1, draw=lambda: 0.5, calls_left=1)
    run = RunRecord(ids.new(), ids.new(), ids.new(), "operate", "running", "{}", datetime.now(UTC))
    execution = Execution(run, RunLog(run, feed or Feed(0), clock, touched))
    if stopped is not None:
        execution.stop.request(stopped)
    driver = StreamDriver(machine, execution, 0, lambda opening: ("test", stream), clock)
    return driver, machine.feed(Begin(), clock.mono_ms())


@asynccontextmanager
async def yielding(
    *chunks: Any, error: Exception | None = None
) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
    """A stream that gives these chunks, and then fails or says nothing more."""

    async def batches() -> AsyncIterator[Sequence[Chunk]]:
        yield chunks
        if error is not None:
            raise error
        await asyncio.Event().wait()

    yield batches()


async def test_what_cannot_be_recorded_ends_the_session_with_our_bug() -> None:
    driver, effects = driver_of(yielding(TextDelta(7)))  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        with pytest.raises(NotTaken, match="TypeError"):
            await driver.run(effects)


async def test_a_bug_of_an_adapter_is_its_streams_failure() -> None:
    driver, effects = driver_of(yielding(TextDelta("a"), error=KeyError("choices")))
    async with asyncio.timeout(10):
        finish = await driver.run(effects)
    assert finish.error is not None
    assert (finish.error.code, finish.error.message) == ("PROVIDER_ERROR", "The adapter failed: KeyError")


@pytest.mark.parametrize(("watchers", "first"), [(0, 3), (1, 1)])
async def test_who_watches_is_shown_the_first_word_before_the_rest_of_what_came_with_it_is_read(
    watchers: int, first: int
) -> None:
    loop, feed, seen = asyncio.get_running_loop(), Feed(0), list[int]()
    feed.watchers = watchers

    def look(log: RunLog) -> None:
        said = sum(len(e.texts) for e in log.take()[0].entries if isinstance(e, TokenBlock))
        seen.extend([said] if said else [])

    def touched(log: RunLog, _: bool) -> None:
        loop.call_soon(look, log)

    words = [TextDelta(word) for word in ("one ", "two ", "three ")]
    driver, effects = driver_of(
        yielding(*words, error=KeyError("over")),
        feed=feed,
        touched=touched,
    )
    async with asyncio.timeout(10):
        await driver.run(effects)
    assert seen[0] == first


@pytest.mark.parametrize("initial_ms", [None, 600_000])
async def test_a_limit_that_comes_nearer_strikes_in_its_time(initial_ms: int | None) -> None:
    timeout = TimeoutOptions(initial_ms=initial_ms, inter_ms=20)
    driver, effects = driver_of(yielding(TextDelta("a")), timeout)
    async with asyncio.timeout(10):
        finish = await driver.run(effects)
    assert finish.error is not None
    assert finish.error.code == "INTER_TOKEN_TIMEOUT"


class Waiting(Held):
    """A stream that is never let in; it tells whether somebody waits."""

    def __init__(self) -> None:
        self.waits = False

    async def admitted(self) -> None:
        """Wait for ever."""
        self.waits = True
        try:
            await asyncio.Event().wait()
        finally:
            self.waits = False

    async def __aenter__(self) -> AsyncIterator[Sequence[Chunk]]:
        raise AssertionError("it was never let in")

    async def __aexit__(self, *_: object) -> None:
        """Nothing was entered."""


async def test_who_waits_to_be_let_in_is_ended_by_the_limit_on_the_whole_and_by_no_other() -> None:
    stream = Waiting()
    driver, effects = driver_of(stream, TimeoutOptions(initial_ms=20, total_ms=200))
    async with asyncio.timeout(10):
        finish = await driver.run(effects)
    assert finish.error is not None
    assert finish.error.code == "DEADLINE_EXCEEDED"
    assert not stream.waits


class Counting(SystemClock):
    """Counts how often it is looked at."""

    looks = 0

    def mono_ms(self) -> float:
        """See the port."""
        self.looks += 1
        return super().mono_ms()


async def test_waiting_to_be_let_in_costs_nothing_meanwhile() -> None:
    clock = Counting()
    driver, effects = driver_of(Waiting(), TimeoutOptions(initial_ms=20, total_ms=1_000), clock)
    async with asyncio.timeout(10):
        await driver.run(effects)
    assert clock.looks < 20


class Unwanted:
    """A stream that tells whether it was entered."""

    entered = False

    async def __aenter__(self) -> AsyncIterator[Sequence[Chunk]]:
        self.entered = True
        raise AssertionError("nobody wants it")

    async def __aexit__(self, *_: object) -> None:
        """Nothing was entered."""


@pytest.mark.parametrize("timeout", [NO_TIMEOUTS, TimeoutOptions()])
async def test_a_model_is_not_asked_when_the_end_was_wanted_before(timeout: TimeoutOptions) -> None:
    stream = Unwanted()
    driver, effects = driver_of(stream, timeout, stopped="user")
    async with asyncio.timeout(10):
        finish = await driver.run(effects)
    assert finish.aborted
    assert not stream.entered
