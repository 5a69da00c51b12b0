"""Runs as they were: read from their logs, and gone on from in branches of their own."""

from __future__ import annotations

from uuid import UUID

from app.core.errors import Conflict, EventsGone
from app.core.moments.moment import Moment
from app.ports.catalog import ForkPoint
from app.ports.storage import RunRecord, RunStore
from app.services.pages import entries_to, known_seq


async def moment_of(store: RunStore, run: RunRecord, at: int, *, parameter: str | None = "at") -> Moment:
    """The run after an event of its log.

    Raises Invalid for an event that is still to come (`parameter` None: named in the body, as `at_seq`), and
    EventsGone where the log is not kept as far back.
    """
    at = known_seq(run, at, parameter=parameter, pointer="" if parameter else "/at_seq")
    moment = Moment()
    async for entry in entries_to(store, run, at):
        if entry.seq != moment.seq + 1:
            break
        moment.take([entry])
    if moment.seq < at:
        raise EventsGone(
            "The log of the run is not kept any more; what is kept of it is at GET /v1/runs/{id}."
        )
    return moment


async def fork_point(store: RunStore, run: RunRecord, at: int) -> ForkPoint:
    """What of its branch's conversation was there after an event of a run.

    Raises Invalid and EventsGone as `moment_of`, and Conflict for a run without a branch and for one that had
    not begun.
    """
    if run.branch_id is None:
        raise Conflict("The run has no branch, so there is no conversation that could be forked.")
    moment = await moment_of(store, run, at, parameter=None)
    if moment.started_ts is None:
        raise Conflict(
            f"After event {at} the run had not begun, and what it would find was not known; fork it at its "
            "RUN_STARTED, or later."
        )
    return ForkPoint(
        run.id, run.branch_id, at, moment.position, moment.answered, [UUID(id) for id in moment.calls.over]
    )
