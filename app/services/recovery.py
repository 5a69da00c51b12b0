"""Go on with runs whose process was lost, or gave them up: read their logs, and carry them to their ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from app.core.events.run import RunRecovered
from app.core.lifecycle.table import State
from app.core.lifecycle.takeover import MAX_RECOVERIES
from app.core.past import SHUTDOWN, Past
from app.ports.storage import RunRecord, RunStore
from app.services.execution import Execution
from app.services.follow import PAGE
from app.services.lost_attempts import LostAttempts
from app.services.runs import Runs

log = structlog.get_logger("recovery")


class Recovery:
    """What is done with a run that was taken over."""

    def __init__(
        self,
        store: RunStore,
        runs: Runs,
        lost_attempts: LostAttempts,
        abandon: Callable[[Execution], Awaitable[None]],
    ) -> None:
        """`abandon` ends what a run left open that is not gone on with."""
        self._store = store
        self._runs = runs
        self._lost_attempts = lost_attempts
        self._abandon = abandon

    async def take_over(self, execution: Execution, cause: str) -> None:
        """Carry a run to its end from where its log ends. Raises what planning raises."""
        past = await self._runs.patiently(execution, lambda: self._past_of(execution.run))
        execution.log.follow(past)
        if past.recoveries >= MAX_RECOVERIES and cause != SHUTDOWN:
            await self._end_exhausted(execution, past)
            return
        if not past.told["RUN_STARTED"]:
            await self._runs.take_up(execution)  # nothing of it has happened
            return
        epoch = execution.run.epoch
        log.warning("run taken over", run_id=str(execution.run.id), epoch=epoch, cause=cause)
        execution.log.event(RunRecovered(epoch, cause))
        # A run that kills its processes would otherwise do so before it is counted.
        await execution.log.committed()
        past.recoveries += cause != SHUTDOWN
        execution.past = past
        await self._runs.patiently(execution, lambda: self._lost_attempts.count(execution))
        await self._runs.take_up(execution)

    async def _past_of(self, run: RunRecord) -> Past:
        past = Past()
        while page := await self._store.page(run.id, after=past.last_seq, limit=PAGE):
            past.take(page)
        return past

    async def _end_exhausted(self, execution: Execution, past: Past) -> None:
        log.error("run not taken over again", run_id=str(execution.run.id), recoveries=MAX_RECOVERIES)
        await self._runs.patiently(execution, lambda: self._abandon(execution))
        run = execution.run
        run.attempts = sum(stream.openings for stream in past.streams.values())
        if run.kind == "operate" and (said := past.streams.get(0)) is not None:
            run.fallback_index = said.fallback_index
            # What came whole is in the conversation.
            run.partial_text = None if said.state is State.COMPLETE else said.text or None
        execution.finish("failed", error=_EXHAUSTED)


_EXHAUSTED: Final[dict[str, Any]] = {
    "code": "RECOVERY_EXHAUSTED",
    "message": f"The run has lost its process {MAX_RECOVERIES + 1} times; ask again to repeat it.",
    "category": "internal",
    "retryable": True,
}
