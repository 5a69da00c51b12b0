"""Handlers that end a session: well, in failure, or from outside."""

from __future__ import annotations

from typing import Final

from app.core.events.abort import AbortCompleted, AbortRequested
from app.core.events.base import Callback
from app.core.events.fallback import FallbackEnd
from app.core.events.retry import RetryEnd
from app.core.events.session import Complete, SessionEnd
from app.core.lifecycle import faults
from app.core.lifecycle.effects import (
    AttemptEnded,
    AttemptOutcome,
    Close,
    Finish,
    Steps,
    StreamError,
)
from app.core.lifecycle.faults import Failure
from app.core.lifecycle.standing import UNDER_WAY, Standing
from app.core.lifecycle.table import State
from app.core.lifecycle.verdict import Verdict

OVER: Final = "the time for the run is over"
"""What is said at the deadline."""


def ended_by(source: str) -> Failure:
    """Why a session ends that somebody wants to end."""
    return Failure(faults.ABORTED, f"ended by {source}")


def complete(session: Standing) -> Steps[None]:
    """The answer is there and passed every check."""
    session.enter(State.COMPLETE)
    yield from end_attempt(session, "completed")
    if retries := session.spent.retries + session.spent.recoveries:
        yield RetryEnd(True, retries, session.attempt)
    yield from leave_fallback(session, success=True)
    count, length = session.token_count, session.length
    saved = sum(map(len, session.draft.texts[: session.saved_at]))
    state = session.tally.state(count, length, session.fallback_index, saved)
    end = Complete(count, length, state, session.finish_reason, session.finish_reason_raw)
    yield end.then(Callback("on_complete", (state,)))
    yield from _end(session, None)


def halt(session: Standing, failure: Failure, verdict: Verdict) -> Steps[None]:
    """Nothing is left to be tried."""
    session.enter(State.ERROR)
    session.tally.causes.append(failure.error)
    yield from leave_fallback(session, success=False)
    all_failed = session.fallback_index > 0 and failure.trouble.fallback and not verdict.cut_short
    error = faults.exhausted(session.tally.causes) if all_failed else failure.error
    yield from _end(session, error)


def abort(session: Standing, source: str, failure: Failure) -> Steps[None]:
    """The session is ended from outside: no ERROR, no RETRY_GIVE_UP, no on_error."""
    if session.state in UNDER_WAY:
        yield Close()
    yield from end_attempt(session, "aborted", failure)
    session.enter(State.ERROR)
    count, length = session.token_count, session.length
    yield AbortRequested(source).then(Callback("on_abort", (count, length)))
    yield AbortCompleted(count, length)
    yield from leave_fallback(session, success=False)
    yield from _end(session, failure.error, aborted=failure.trouble is faults.ABORTED)


def end_attempt(session: Standing, outcome: AttemptOutcome, failure: Failure | None = None) -> Steps[None]:
    """Say how the present attempt ended, or that it was paused, if it was opened and that was not told."""
    if not session.attempt_runs:
        return
    session.attempt_runs = False
    draft = session.draft
    whole, heard = draft.is_counted, 0
    if not whole or draft.usage is None or draft.usage.output_tokens == 0:
        heard = draft.heard + (0 if session.seam is None else session.seam.length)
    trouble = None if failure is None else failure.trouble
    # At our own limit the server has neither refused nor been out of reach: it may be at work.
    refused = outcome == "failed" and not session.opened and trouble is not faults.INITIAL_TIMEOUT
    code = None if trouble is None else trouble.code
    yield AttemptEnded(outcome, code, draft.usage, whole, heard, refused)


def leave_fallback(session: Standing, *, success: bool) -> Steps[None]:
    """Say how the fallback ended, if the present model is one."""
    if session.in_fallback:
        session.in_fallback = False
        yield FallbackEnd(session.fallback_index, success, final_index=session.fallback_index)


def _end(session: Standing, error: StreamError | None, *, aborted: bool = False) -> Steps[None]:
    session.limits.end()
    yield SessionEnd(error is None, session.openings)
    yield session.tally.summary(session.token_count, session.fallback_index, session.now_ms)
    yield Finish(error, aborted)
