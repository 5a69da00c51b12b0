"""Execute the runs that this process holds, keep their leases, and take over what nobody holds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

import structlog
from pydantic_core import from_json

from app.core.errors import AppError, Unavailable
from app.core.events.run import RunExpired
from app.core.past import SHUTDOWN
from app.core.record import Entry
from app.core.usage.totals import Totals
from app.ports.ambient import Clock
from app.ports.storage import RunRecord, RunStore
from app.services.entries import entry_of
from app.services.execution import Execution, error_of
from app.services.recorder import Recorder
from app.services.run_log import LeaseLost, RecordRejected

BEAT_S = 0.8
"""How often leases are renewed, intents looked for and lost runs claimed, unless that is too seldom."""
CLAIM_LIMIT = 16
"""Runs of each kind taken at once: what comes in a burst is spread over the processes that look for it."""
STORING_S = 2.0
"""How long a process that stops waits for what its runs have said to be stored."""
CLOSING_S = 3.0
"""How long it then waits for them to close their connections, and to have their tools end."""
LEASE_EXPIRED: Final = "lease_expired"
"""Why a run is taken over from a process that was not heard of any more."""
HURRY_S = 0.005
"""Least time between two looks for runs, so that many hints do not cause as many."""
EXPIRY_PERIOD_MS = 30_000
"""How often queued runs are looked at whose time is over."""

log = structlog.get_logger("executor")


Work = Callable[[Execution], Awaitable[None]]
"""Carries a run to its end: calls `execution.finish`, or raises."""


class Executor:
    """The tasks of the runs whose leases this process holds."""

    def __init__(
        self,
        store: RunStore,
        recorder: Recorder,
        resume: Work,
        recover: Callable[[str, Execution], Awaitable[None]],
        abandon: Work,
        clock: Clock,
        *,
        beat_s: float = BEAT_S,
        grace_s: float = 0.0,
    ) -> None:
        """`resume` executes a run that had to queue or wait; `recover` one that another process had begun,
        and is told why it has it no more; `abandon` ends what a lost one left open.

        `beat_s` has to be well below the length of a lease: a live run is taken away from a late process.
        For `grace_s` after an outage of the database no run counts as lost.
        """
        self._store = store
        self._recorder = recorder
        self._resume = resume
        self._recover = recover
        self._abandon = abandon
        self._clock = clock
        self._beat_s = beat_s
        self._grace_ms = grace_s * 1000
        self._expiry_due_ms = 0
        self._renewal_due_ms = self._lost_due_ms = 0.0
        self._running: dict[UUID, Execution] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._given_back: list[RunRecord] = []
        self._given_up: list[RunRecord] = []
        self._hurried = asyncio.Event()

    def __len__(self) -> int:
        return len(self._running)

    def get(self, run_id: UUID) -> Execution | None:
        """The run's execution, while it is here."""
        return self._running.get(run_id)

    def draft(self, run: RunRecord) -> Execution:
        """A run that is yet to be accepted: what is appended to its log is for the acceptance to store."""
        return Execution(run, self._recorder.draft(run))

    def start(self, execution: Execution, entries: Sequence[Entry], work: Work) -> None:
        """Execute a draft that was accepted with its first events."""
        self._recorder.adopt(execution.log, entries)
        self._register(execution)
        self._spawn(execution, work)

    def take_up(self, runs: Sequence[RunRecord]) -> None:
        """Execute runs that were queued until now; a process that is stopping leaves them to others."""
        for run in runs:
            self._take(run, self._resume, self._given_back)

    def _take(self, run: RunRecord, work: Work, left: list[RunRecord]) -> None:
        """Execute a run that has just been got; `left` are those that a stopping process does not."""
        held = self._running.get(run.id)
        if self._stopping:
            left.append(run)
            return
        if held is None:
            self._spawn(self._hold(run), work)
        elif held.run.epoch != run.epoch:
            # It has just come to wait here, and its task has not been told yet that this is stored; or it was
            # lost to a process that is lost itself.
            held.done.add_done_callback(lambda _: self._take(run, work, left))

    def _hold(self, run: RunRecord) -> Execution:
        execution = Execution(run, self._recorder.open(run))
        if run.usage is not None:
            execution.totals = Totals.of(from_json(run.usage))
        if run.cancel_requested_at is not None:
            execution.stop.request("user")
        self._register(execution)
        return execution

    def _register(self, execution: Execution) -> None:
        self._running[execution.run.id] = execution

    def _spawn(self, execution: Execution, work: Work) -> None:
        task = asyncio.create_task(self._to_the_end(execution, work), name=f"run {execution.run.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _to_the_end(self, execution: Execution, work: Work) -> None:
        run, stored = execution.run, False
        try:
            try:
                await work(execution)
            except (LeaseLost, RecordRejected):
                raise
            except AppError as refusal:
                await self._give_up(execution, error_of(refusal))
            except Exception as bug:
                log.exception("run failed by a bug", run_id=str(run.id))
                await self._give_up(execution, _internal(bug))
            await execution.log.committed()
            stored = True
        except LeaseLost:
            if not self._stopping:
                log.warning("lease lost", run_id=str(run.id))
        except RecordRejected as refusal:
            stored = await self._end_rejected(execution, refusal)
        finally:
            if self._running.get(run.id) is execution:
                del self._running[run.id]
            if not execution.done.done():
                execution.done.set_result(stored)
            if run.status == "waiting":
                self.hurry()  # what was decided while its other calls still ran is not to wait for the beat

    async def _give_up(self, execution: Execution, error: dict[str, Any]) -> None:
        """End a run that cannot go on, and the calls that it left open while it waited, or by a bug."""
        if execution.run.status != "running":
            return
        await execution.log.committed()
        await self._close_calls(execution)
        if execution.stop.source == "user":
            execution.finish("cancelled", error=_CANCELLED)
        else:
            execution.finish("failed", error=error)

    async def _close_calls(self, execution: Execution) -> None:
        """End what is open, however long the database is away. Raises LeaseLost."""
        while True:
            try:
                return await self._abandon(execution)
            except Unavailable:
                await asyncio.sleep(self._beat_s)

    async def _end_rejected(self, execution: Execution, refusal: RecordRejected) -> bool:
        """The database refused what the run had to say: end it from what is stored, and say if that is."""
        run = execution.run
        log.error("record rejected", run_id=str(run.id), why=str(refusal))
        run.last_seq = execution.log.feed.last_seq
        # What the model made may be what was refused; the log's own words are not.
        run.finish_reason_raw = run.partial_text = run.validation = None
        run.ended_at = None
        again = Execution(run, self._recorder.open(run))
        error = {
            "code": "RECORD_REJECTED",
            "message": "The database refused what the run had to store; the service's log says why.",
            "category": "internal",
            "retryable": False,
        }
        try:
            await self._close_calls(again)
            again.finish("failed", error=error)
            await again.log.committed()
        except (LeaseLost, RecordRejected) as failure:
            log.error("run could not be ended", run_id=str(run.id), why=repr(failure))
            return False
        finally:
            execution.log.feed.close()
        return True

    async def work(self) -> None:
        """Beat for ever; ends by cancellation."""
        while True:
            try:
                await self._beat()
            except Unavailable:
                # The recorder says so. When the database is back, those who hold runs come first: a lease
                # that has run out meanwhile is not the sign of a lost process.
                self._lost_due_ms = self._clock.mono_ms() + self._grace_ms
            except Exception:
                log.exception("beat failed")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), self._beat_s)
                await asyncio.sleep(HURRY_S)
            self._hurried.clear()

    def hurry(self) -> None:
        """Look now for what can be taken up: something has just been decided."""
        self._hurried.set()

    async def _beat(self) -> None:
        now_ms = self._clock.mono_ms()
        if now_ms >= self._renewal_due_ms:
            await self._renew()
            self._renewal_due_ms = now_ms + self._beat_s * 1000
        if self._stopping:
            await self.put_back()
        else:
            await self._claim()

    async def _renew(self) -> None:
        leases = {id: held.run.epoch for id, held in self._running.items() if not held.log.lost}
        if leases:
            cancelled, lost = await self._store.renew(leases)
            for run_id in cancelled:
                self.cancel(run_id)
            for run_id in lost:
                self._forget(run_id, leases[run_id])

    async def _claim(self) -> None:
        now_ms = self._clock.wall_ms()
        if now_ms >= self._expiry_due_ms:
            self._expiry_due_ms = now_ms + EXPIRY_PERIOD_MS
            event = entry_of(RunExpired("expired", usage=None, error=None), 0, now_ms)
            await self._store.expire(at=datetime.fromtimestamp(now_ms / 1000, UTC), expired=event)
        claimed = await self._store.claim(CLAIM_LIMIT, lost=self._clock.mono_ms() >= self._lost_due_ms)
        self.take_up([*claimed.started, *claimed.woken])
        for runs, cause in ((claimed.orphans, LEASE_EXPIRED), (claimed.given_up, SHUTDOWN)):
            for run in runs:
                self._take(run, partial(self._recover, cause), self._given_up)
        most = (len(claimed.orphans) + len(claimed.given_up), len(claimed.started), len(claimed.woken))
        if max(most) >= CLAIM_LIMIT:
            self.hurry()  # there are more

    def _forget(self, run_id: UUID, epoch: int) -> None:
        execution = self._running.get(run_id)
        # It may have ended since its lease was to be renewed; then nothing was lost.
        if execution is not None and execution.run.epoch == epoch and not execution.run.ended:
            self._let_go(execution)

    def _let_go(self, execution: Execution) -> None:
        """Write nothing more for a run that is somebody else's, and have its task end."""
        self._recorder.let_go(execution.log)
        execution.stop.request(SHUTDOWN)

    def cancel(self, run_id: UUID, source: str = "user") -> Execution | None:
        """Have a run end as soon as it can, if it is executed here."""
        execution = self._running.get(run_id)
        if execution is not None:
            execution.stop.request(source)
        return execution

    async def stop(self, grace_s: float) -> None:
        """Let runs end by themselves for a while, then leave those that have not to other processes."""
        self.retire()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        left = await self._leave()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING_S)
        self._given_up += left
        with contextlib.suppress(Unavailable):
            await self.put_back()

    def retire(self) -> None:
        """Take nothing up any more, and leave what is still handed to this process to others."""
        self._stopping = True

    async def put_back(self) -> None:
        """Let others have what this process has got, and does not execute. Raises Unavailable."""
        given_up, self._given_up = self._given_up, []
        given_back, self._given_back = self._given_back, []
        try:
            if given_up:
                await self._store.release({run.id: run.epoch for run in given_up})
            if given_back:
                await self._store.give_back(given_back)
        except Unavailable:
            self._given_up += given_up
            self._given_back += given_back
            raise

    async def _leave(self) -> list[RunRecord]:
        """Stop the tasks of all runs as soon as what they have said is stored; those that go on elsewhere."""
        held = list(self._running.values())
        stored = [asyncio.create_task(self._settled(execution)) for execution in held]
        if stored:
            await asyncio.wait(stored, timeout=STORING_S)
        for task in stored:
            task.cancel()
        # One that has come to its end, or to wait, is being stored as that.
        under_way = [execution for execution in held if execution.run.status == "running"]
        for execution in under_way:
            self._let_go(execution)
        return [execution.run for execution in under_way]

    async def _settled(self, execution: Execution) -> None:
        with contextlib.suppress(LeaseLost, RecordRejected):
            await execution.log.committed()


_CANCELLED: Final = {
    "code": "RUN_CANCELLED",
    "message": "stopped by user before it could go on",
    "category": "provider",
    "retryable": False,
}


def _internal(bug: Exception) -> dict[str, Any]:
    return {
        "code": "INTERNAL",
        "message": f"A fault of the service ended the run ({type(bug).__name__}); its log has the details.",
        "category": "internal",
        "retryable": False,
    }
