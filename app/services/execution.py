"""One run while this process executes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from app.core.errors import AppError
from app.core.events.base import Event
from app.core.events.run import RunCancelled, RunCompleted, RunExpired, RunFailed, RunWaiting
from app.core.json_text import dumps
from app.core.lifecycle.inputs import TakeOver
from app.core.lifecycle.replay import Replay
from app.core.past import Past
from app.core.usage.totals import Totals
from app.ports.storage import RunRecord
from app.services.run_log import RunLog

TERMINAL: dict[str, type[RunCompleted] | type[RunFailed] | type[RunCancelled] | type[RunExpired]] = {
    "completed": RunCompleted,
    "failed": RunFailed,
    "cancelled": RunCancelled,
    "expired": RunExpired,
}


NO_PAST: Final = Past()
"""Shared, and never told of anything."""


class Stop:
    """Tells everything that a run is waiting for that the run is to end. Set once."""

    def __init__(self) -> None:
        self._future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def request(self, source: str) -> None:
        """Ask for the end; `source` says who does: `user`, `shutdown`, or `timeout` for the deadline."""
        if not self._future.done():
            self._future.set_result(source)

    @property
    def source(self) -> str | None:
        """Who asked, if anybody did."""
        return self._future.result() if self._future.done() else None

    @property
    def requested(self) -> asyncio.Future[str]:
        """Done as soon as somebody asks; to be waited for beside other things, never awaited alone."""
        return self._future


class Execution:
    """A run, its open log, and how it is stopped."""

    def __init__(self, run: RunRecord, run_log: RunLog) -> None:
        self.run = run
        self.log = run_log
        self.stop = Stop()
        self.streams = 0
        """How many streams it has opened; the next one's index."""
        self.calls: list[UUID] = []
        """Its function calls, in the order in which they were proposed."""
        self.totals = Totals()
        """What all attempts so far used and cost."""
        self.past = NO_PAST
        """What its log tells of the process that had it before; empty unless that was lost."""
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Done when all that it says of its run is committed; False where this process may not write that."""

    def taken_over(self, past: Replay) -> TakeOver:
        """A stream of it that another process has begun is to be gone on with, or to be ended."""
        return TakeOver(past, self.past.recovery, self.stop.source)

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Stop the run, for `timeout`, when the block takes longer; None sets no limit."""
        if seconds is None:
            yield
            return
        timer = asyncio.get_running_loop().call_later(seconds, self.stop.request, "timeout")
        try:
            yield
        finally:
            timer.cancel()

    def wait(self, resume: str, until: datetime, reason: str) -> None:
        """Append that the run waits, and leave it to whoever takes it up; `resume` is JSON text for that."""
        run = self.run
        self.log.event(RunWaiting(reason, until.isoformat()))
        run.status = "waiting"
        run.resume, run.wake_at = resume, until
        run.usage = self._kept_usage()
        self.log.end(run)

    def finish(self, status: str, *, result: str | None = None, error: dict[str, Any] | None = None) -> None:
        """Append the terminal event and the run's end; `result` is JSON text.

        The result is stored with the run only, and joins the event's meta when that is read.
        """
        run = self.run
        event: Event = TERMINAL[status](status=status, usage=self.totals.counts(), error=error)
        self.log.event(event, more=f'{{"result":{result or "null"}}}')
        run.status = status
        run.function_calls = self.calls
        run.result = result
        run.error = None if error is None else dumps(error).decode()
        run.usage = self._kept_usage()
        run.ended_at = datetime.fromtimestamp(self.log.last_ts / 1000, UTC)
        self.log.end(run)

    def _kept_usage(self) -> str | None:
        kept = self.totals.kept()
        return None if kept is None else dumps(kept).decode()


def error_of(failure: AppError) -> dict[str, Any]:
    """A refusal as the error of a run that could not tell its caller in time."""
    out: dict[str, Any] = {
        "code": failure.code,
        "message": failure.detail,
        "category": failure.category.value,
        "retryable": failure.retryable,
    }
    if failure.errors:
        out["detail"] = {"errors": [{"pointer": e.pointer, "message": e.message} for e in failure.errors]}
    return out
