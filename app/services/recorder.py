"""Write the logs of all runs of this process, and announce what was committed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import structlog

from app.core.errors import Unavailable
from app.core.record import Entry
from app.core.usage.totals import Totals
from app.ports.ambient import Clock
from app.ports.attempts import NewAttempt
from app.ports.storage import Flush, FlushResult, RunRecord, RunStore
from app.services.feed import Feed, Feeds
from app.services.run_log import LeaseLost, RecordRejected, RunLog

GROUP = 256
"""Most runs in one commit."""
UNWATCHED_S = 0.1
"""How long the events of a run that nobody watches may wait for company."""
RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between tries while the database is away; the last one repeats."""

log = structlog.get_logger("recorder")


Listener = Callable[[RunRecord, Sequence[Entry], bool], None]
"""Told of what was committed for a run, and whether it was the last that this process writes for it."""


class Recorder:
    """Writes the logs of all runs of this process, one group at a time."""

    def __init__(
        self,
        store: RunStore,
        feeds: Feeds,
        clock: Clock,
        on_started: Callable[[Sequence[RunRecord]], None],
        listeners: Sequence[Listener] = (),
    ) -> None:
        """`on_started` takes queued runs that got their branch in a flush of ours.

        `listeners` are told of every run's commits, in order; they must not wait.
        """
        self._store = store
        self._feeds = feeds
        self._clock = clock
        self._on_started = on_started
        self._listeners = listeners
        self._dirty: dict[UUID, RunLog] = {}
        self._wake = asyncio.Event()
        self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        self.paused = False
        """Whether the last try to write failed because the database is away."""
        self.commits = self.entries = self.ends = 0
        """Groups, log entries and ends of runs that were committed since the start."""
        self.spent = Totals()
        """What the attempts used and cost that were committed since the start."""

    def open(self, run: RunRecord, entries: Sequence[Entry] = ()) -> RunLog:
        """The log of a run whose lease is ours; `entries` were committed when it was accepted."""
        if entries:
            run.last_seq = entries[-1].last_seq
        feed = self._feeds.open(run.id, run.last_seq)
        if entries:
            feed.publish(entries, ended=False)
            self._tell(run, entries, ended=False)
        return RunLog(run, feed, self._clock, self._touched)

    def draft(self, run: RunRecord) -> RunLog:
        """The log of a run that is yet to be accepted: what it begins with is taken, and stored with that."""
        return RunLog(run, Feed(0), self._clock, lambda *_: None)

    def adopt(self, run_log: RunLog, entries: Sequence[Entry]) -> None:
        """Write the log of a draft that was accepted with these entries, and announce them."""
        run_log.join(self.open(run_log.run, entries))

    def let_go(self, run_log: RunLog) -> None:
        """Write nothing more of a log that is somebody else's; who follows it reads on from the database."""
        run_log.fail(LeaseLost())
        run_log.feed.close()
        self._feeds.drop(run_log.run.id, run_log.feed)
        self._tell(run_log.run, (), ended=True)

    def _touched(self, run_log: RunLog, urgent: bool) -> None:
        self._dirty[run_log.run.id] = run_log
        if urgent or run_log.backlog:
            self._wake.set()
        elif self._timer is None and not self._wake.is_set():
            self._timer = asyncio.get_running_loop().call_later(UNWATCHED_S, self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        self._wake.set()

    async def work(self) -> None:
        """Write for ever; ends by cancellation."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._writing = True
            while self._dirty:
                logs = list(self._dirty.values())[:GROUP]
                for run_log in logs:
                    del self._dirty[run_log.run.id]
                try:
                    await self._flush(logs)
                except Exception as bug:
                    log.exception("flush failed")
                    for run_log in logs:
                        run_log.fail(RecordRejected(repr(bug)))
                # Who follows is told first; what comes meanwhile is company for what is to be written next.
                await asyncio.sleep(0)
            self._writing = False

    async def _flush(self, logs: Sequence[RunLog]) -> None:
        taken = [(run_log, *run_log.take()) for run_log in logs]
        for run_log, _, _ in taken:
            run_log.in_flight = True
        result = await self._write([flush for _, flush, _ in taken])
        self.commits += 1
        lost = set(result.lost)
        for run_log, flush, waiting in taken:
            run_log.in_flight = False
            failure: Exception | None = None
            if flush.run_id in lost:
                failure = LeaseLost()
            elif flush.run_id in result.rejected:
                failure = RecordRejected(result.rejected[flush.run_id])
            if failure is None:
                self._count(flush)
                # A run that waits may go on in another process.
                run_log.feed.publish(flush.entries, ended=flush.end is not None)
                self._tell(run_log.run, flush.entries, ended=flush.ends)
            else:
                log.error("run stopped", run_id=str(flush.run_id), why=repr(failure))
                run_log.fail(failure)
                if isinstance(failure, LeaseLost):
                    run_log.feed.close()
                    self._tell(run_log.run, (), ended=True)
            for future in (*waiting, *run_log.settled()):
                if not future.done():
                    future.set_exception(failure) if failure else future.set_result(None)
            if flush.end is not None or flush.run_id in lost:
                self._feeds.drop(flush.run_id, run_log.feed)
        if result.started:
            self._on_started(result.started)

    def _count(self, flush: Flush) -> None:
        self.entries += len(flush.entries)
        self.ends += flush.ends
        for row in flush.rows:
            if isinstance(row, NewAttempt):
                self.spent.add(row.usage, row.cost)

    def _tell(self, run: RunRecord, entries: Sequence[Entry], *, ended: bool) -> None:
        for listener in self._listeners:
            try:
                listener(run, entries, ended)
            except Exception:
                log.exception("listener failed", run_id=str(run.id))

    async def _write(self, flushes: Sequence[Flush]) -> FlushResult:
        """Write the group, however long the database is away: what was said must not be lost."""
        tries = 0
        while True:
            try:
                result = await (self._write_rest(flushes) if tries else self._store.flush(flushes))
            except Unavailable as away:
                if not self.paused:
                    log.warning("database away, runs pause", why=away.detail)
                self.paused = True
                await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
                tries += 1
            except Exception as bug:
                # Not the data's fault and not the database's state: stop these runs rather than the recorder.
                log.exception("flush failed")
                return FlushResult(rejected={flush.run_id: repr(bug) for flush in flushes})
            else:
                if self.paused:
                    log.info("database back, runs go on")
                self.paused = False
                return result

    async def _write_rest(self, flushes: Sequence[Flush]) -> FlushResult:
        """After a try that broke off: what of it was committed all the same must not be written twice."""
        written, started = await self._store.written(flushes)
        rest = [flush for flush in flushes if flush.run_id not in written]
        result = await self._store.flush(rest) if rest else FlushResult()
        return replace(result, started=[*started, *result.started])

    async def drain(self, timeout_s: float) -> None:
        """Let everything that waits be written, within a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._dirty or self._writing:
                    self._wake.set()
                    await asyncio.sleep(0.01)
