"""When the events and rows of a run are written, and with what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import cast

import pytest

from app.core.events.run import RunStarted
from app.ports.storage import Flush, FlushResult, NewMessage, RunRecord, RunStore
from app.services.feed import Feeds
from app.services.recorder import Recorder
from app.services.run_log import RunLog
from tests.support.ambient import CountingIds, FakeClock
from tests.support.polling import until

pytestmark = pytest.mark.anyio

IDS = CountingIds()


class Kept:
    """A store that only keeps what is written."""

    def __init__(self) -> None:
        self.flushes: list[Flush] = []

    async def flush(self, flushes: Sequence[Flush]) -> FlushResult:
        """Keep them."""
        self.flushes += flushes
        return FlushResult()


@asynccontextmanager
async def recording(kept: Kept | None = None) -> AsyncIterator[tuple[RunLog, Kept]]:
    kept = kept or Kept()
    clock = FakeClock()
    recorder = Recorder(cast(RunStore, kept), Feeds(), clock, lambda started: None)
    run = RunRecord(IDS.new(), IDS.new(), IDS.new(), "operate", "running", "{}", datetime.now(UTC))
    work = asyncio.create_task(recorder.work())
    try:
        yield recorder.open(run), kept
    finally:
        work.cancel()
        await asyncio.wait([work])


def message() -> NewMessage:
    return NewMessage(IDS.new(), "instruction", "{}")


async def turns() -> None:
    """Let everything go as far as it can without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_rows_of_a_run_that_nobody_watches_wait_for_its_end() -> None:
    async with recording() as (log, kept):
        log.event(RunStarted())
        log.write(message())
        await turns()
        assert kept.flushes == []
        log.end(log.run)
        await log.committed()
        [flush] = kept.flushes
        assert (len(flush.entries), len(flush.rows), flush.end) == (1, 1, log.run)


async def test_rows_are_written_as_soon_as_somebody_needs_them() -> None:
    async with recording() as (log, kept):
        log.write(message(), message())
        await log.committed()
        assert [len(flush.rows) for flush in kept.flushes] == [2]


async def test_what_a_watched_run_says_is_written_at_once() -> None:
    async with recording() as (log, kept):
        log.feed.watchers = 1
        log.write(message())
        await turns()
        assert [len(flush.rows) for flush in kept.flushes] == [1]


class Slow(Kept):
    """One that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()

    async def flush(self, flushes: Sequence[Flush]) -> FlushResult:
        """Keep them, in time."""
        await self.goes_on.wait()
        return await super().flush(flushes)


async def test_what_is_not_urgent_is_written_with_what_is() -> None:
    async with recording() as (log, kept):
        log.feed.watchers = 1
        log.event(RunStarted(), urgent=False)
        await turns()
        assert kept.flushes == []
        log.event(RunStarted())
        await turns()
        assert [len(flush.entries) for flush in kept.flushes] == [2]


async def test_what_is_not_urgent_waits_for_company_a_while_only() -> None:
    async with recording() as (log, kept):
        log.feed.watchers = 1
        log.event(RunStarted(), urgent=False)
        await until(lambda: kept.flushes)


class Spoken(Kept):
    """One while which writes there is more to be written, some times."""

    log: RunLog

    async def flush(self, flushes: Sequence[Flush]) -> FlushResult:
        """Keep them."""
        if len(self.flushes) < 2:
            self.log.event(RunStarted())
        return await super().flush(flushes)


async def test_who_follows_is_told_before_more_is_written() -> None:
    kept = Spoken()
    async with recording(kept) as (log, _):
        kept.log, log.feed.watchers = log, 1
        heard: list[int] = []

        async def follow() -> None:
            while await log.feed.changed(10):
                heard.append(len(kept.flushes))

        following = asyncio.create_task(follow())
        await turns()
        log.event(RunStarted())
        await turns()
        following.cancel()
        assert heard == [1, 2, 3]


async def test_what_is_being_written_is_waited_for_at_the_end() -> None:
    slow = Slow()
    recorder = Recorder(cast(RunStore, slow), Feeds(), FakeClock(), lambda started: None)
    run = RunRecord(IDS.new(), IDS.new(), IDS.new(), "operate", "running", "{}", datetime.now(UTC))
    work = asyncio.create_task(recorder.work())
    log = recorder.open(run)
    log.end(run)
    await turns()
    draining = asyncio.create_task(recorder.drain(60))
    await turns()
    assert not draining.done()
    slow.goes_on.set()
    await draining
    assert [flush.end for flush in slow.flushes] == [run]
    work.cancel()
    await asyncio.wait([work])
