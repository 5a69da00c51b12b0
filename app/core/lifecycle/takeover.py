"""Handlers for a session whose process was lost: stand where its log ends, and go on from there."""

from __future__ import annotations

from typing import Final

from app.core.events.base import Callback
from app.core.events.retry import RetryAttempt, RetryStart
from app.core.lifecycle import faults
from app.core.lifecycle.closing import OVER, abort, ended_by
from app.core.lifecycle.draft import Draft
from app.core.lifecycle.effects import Finish, Position, Steps
from app.core.lifecycle.failing import fail
from app.core.lifecycle.faults import Failure
from app.core.lifecycle.limits import Limit
from app.core.lifecycle.opening import retry
from app.core.lifecycle.outage import Outage
from app.core.lifecycle.replay import RECOVERY, Replay
from app.core.lifecycle.resuming import tokens_before
from app.core.lifecycle.standing import Standing
from app.core.lifecycle.table import State

MAX_RECOVERIES: Final = 3
"""How often a run is gone on with whose process was lost."""
REASON: Final = "process_lost"


def take_over(session: Standing, past: Replay, number: int, stop: str | None) -> Steps[None]:
    """Go on with a session that was under way; `number` says which recovery of the run it is, from 1.

    An attempt that was open, or about to be, is made again at once. A pause that had begun is waited for.
    With `stop`, which says who wants its end, the session is ended, and nobody is asked again.
    """
    _stand(session, past)
    session.limits.begin(past.began_ms)
    yield Position(session.attempt, session.fallback_index)
    if session.limits.struck(session.now_ms) is Limit.TOTAL:
        yield from abort(session, "timeout", Failure(faults.DEADLINE, OVER))
        return
    if stop is not None:
        yield from abort(session, stop, ended_by(stop))
        return
    if past.pause_ends_ms is not None:
        session.resume_at = tokens_before(session, past.fault_category or "", past.fault_position)
        if past.pause_ends_ms > session.now_ms:
            session.limits.pause(past.pause_ends_ms)
        else:
            yield from retry(session)
        return
    session.resume_at = tokens_before(session, RECOVERY, None)
    if not past.announced:
        if session.budget.left < 1:
            message = "its process was lost, and no model call is left to the run"
            yield from fail(session, Failure(faults.NO_CALLS_LEFT, message))
            return
        session.budget.take()
        session.enter(State.RETRYING)
    session.spent.recoveries += 1
    yield RetryStart(MAX_RECOVERIES, RECOVERY)
    again = RetryAttempt(number, REASON, 0, MAX_RECOVERIES)
    yield again.then(Callback("on_retry", (number, REASON)))
    yield from retry(session)


def recall(session: Standing, past: Replay) -> Finish:
    """Stand at the end of a session that is over; how it ended."""
    _stand(session, past)
    session.tool_calls = list(past.tool_calls)
    session.draft.finish_reason, session.draft.finish_reason_raw = past.finish_reason, past.finish_reason_raw
    return past.finish()


def _stand(session: Standing, past: Replay) -> None:
    """Everything that the log tells. The session has just been made."""
    session.state = past.state  # the way there was gone by the process that is lost
    session.attempt, session.fallback_index = past.attempt, past.fallback_index
    session.in_fallback, session.openings = past.in_fallback, past.openings
    session.draft = Draft(past.texts)
    session.saved_at, session.spent, session.last_pause_ms = past.saved_at, past.spent, past.last_pause_ms
    session.outage = Outage(past.dropped_ms, past.outage_ms, past.failed_attempts)
    tally = session.tally
    tally.began_ms, tally.causes = past.began_ms, list(past.causes)
    tally.model_retries, tally.network_retries = past.model_retries, past.network_retries
    tally.violations, tally.checkpoints = past.violations, past.checkpoints
    tally.drift_detected = past.drift_detected
