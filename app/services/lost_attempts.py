"""Count the attempts of a run whose ends nobody saw: its process was lost, or failed by a bug."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import structlog

from app.core.errors import AppError
from app.core.lifecycle.effects import AttemptEnded
from app.core.usage.counts import usage_of
from app.core.usage.totals import Totals
from app.ports.ambient import Clock
from app.ports.attempts import AttemptLog, LostAttempt, NewAttempt
from app.ports.storage import RunRecord
from app.services.execution import Execution
from app.services.plan import Asked, Plan

log = structlog.get_logger("lost attempts")


class LostAttempts:
    """What the log knows of them is counted, as an estimate: their text, and what the run would ask again."""

    def __init__(
        self, store: AttemptLog, prepare: Callable[[RunRecord], Awaitable[Plan]], clock: Clock
    ) -> None:
        """`prepare` plans a stored run anew, for its models and prompts."""
        self._store = store
        self._prepare = prepare
        self._clock = clock

    async def count(self, execution: Execution) -> None:
        """Append their rows, and have the run's totals be those of all its attempts. Raises Unavailable.

        Everything that the run's log was given is stored by now.
        """
        run = execution.run
        ended, lost = await self._store.attempts_of(run.id)
        totals = execution.totals = Totals() if ended or lost else execution.totals
        for attempt in ended:
            totals.add(attempt.usage, attempt.cost)
        if not lost:
            return
        asked = await self._asked(run, lost)
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        for one, whom in zip(lost, asked, strict=True):
            attempt = _counted(one, whom, now)
            totals.add(attempt.usage, attempt.cost)
            execution.log.write(attempt)

    async def _asked(self, run: RunRecord, lost: Sequence[LostAttempt]) -> Sequence[Asked | None]:
        """Whom each of them asked; whatever stands in the way of knowing it, the run has to be ended."""
        try:
            plan = await self._prepare(run)
            return [plan.asked(one.stream, one.fallback_index) for one in lost]
        except AppError as refusal:
            log.info("lost attempts without a model", run_id=str(run.id), why=refusal.detail)
        except Exception:
            log.exception("lost attempts without a model", run_id=str(run.id))
        return [None] * len(lost)


def _counted(lost: LostAttempt, asked: Asked | None, now: datetime) -> NewAttempt:
    endpoint, length = (None, 0) if asked is None else asked
    names: tuple[str | None, str | None, str | None] = (None, None, None)
    if endpoint is not None:
        names = endpoint.name, endpoint.provider, endpoint.model
    price = None if endpoint is None else endpoint.price
    end = AttemptEnded("aborted", None, None, whole=False, heard=lost.length)
    usage = usage_of(end, lambda: length * lost.calls)
    return NewAttempt(
        lost.stream,
        lost.fallback_index,
        lost.attempt,
        lost.purpose,
        *names,
        "lost",
        None,
        usage,
        None if price is None else price.cost_of(usage),
        lost.started_at,
        now,
    )
