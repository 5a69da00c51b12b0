"""Handlers for an attempt that failed: say so, then try again, go on to the next model, or end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from app.core.events.base import Callback, Event
from app.core.events.retry import (
    RetryAttempt,
    RetryFnError,
    RetryFnResult,
    RetryFnStart,
    RetryGiveUp,
    RetryStart,
)
from app.core.events.session import Error
from app.core.lifecycle import faults
from app.core.lifecycle.closing import end_attempt, halt
from app.core.lifecycle.delays import backoff_ms, with_retry_after
from app.core.lifecycle.effects import Ask, Steps, StreamError
from app.core.lifecycle.faults import Failure, Spends
from app.core.lifecycle.opening import fall_back, retry
from app.core.lifecycle.resuming import resume_at
from app.core.lifecycle.standing import Standing
from app.core.lifecycle.table import State
from app.core.lifecycle.verdict import Recovery, Verdict, judge

LONGEST_PAUSE_MS: Final = 3_600_000
"""What the caller's own expression for the pause can ask for at most."""

_MESSAGE: Final = 1_000
"""How much of an error's message the caller's expressions see: what they cost grows with it."""

_VALUE: Final = 100
"""How much of a useless value is told."""

_BAD_REQUEST: Final = frozenset({400, 422})


def fail(session: Standing, failure: Failure) -> Steps[None]:
    """The present attempt failed."""
    failure = _of_the_prefix(session, failure)
    yield from end_attempt(session, "failed", failure)
    session.resume_at = resume_at(session, failure)
    verdict = _judge(session, failure)
    asked: list[Event] = []
    if verdict.recovery is Recovery.RETRY and session.options.retry.should_retry is not None:
        asked, agreed = yield from _ask_caller(session, failure)
        # Judged anew in any case: another stream of the run may have used the last model call meanwhile.
        verdict = _judge(session, failure, vetoed=not agreed)
    will_retry = verdict.recovery is Recovery.RETRY
    yield from _say(session, failure, verdict, () if will_retry else tuple(asked))
    match verdict.recovery:
        case Recovery.RETRY:
            yield from _back_off(session, failure, verdict, asked)
        case Recovery.FALLBACK:
            yield from fall_back(session, failure)
        case Recovery.HALT:
            yield from halt(session, failure, verdict)


def _of_the_prefix(session: Standing, failure: Failure) -> Failure:
    """A server that takes no answer to go on from is asked afresh, and never again with one."""
    refused = failure.status in _BAD_REQUEST
    if not (session.resumed and not session.opened and failure.trouble is faults.REJECTED and refused):
        return failure
    session.prefix_refused = True
    return replace(failure, trouble=faults.PREFIX_REFUSED)


def _judge(session: Standing, failure: Failure, *, vetoed: bool = False) -> Verdict:
    return judge(
        failure.trouble,
        session.spent,
        session.options.retry,
        models_left=session.models - session.fallback_index - 1,
        calls_left=session.budget.left,
        vetoed=vetoed,
    )


def _ask_caller(session: Standing, failure: Failure) -> Steps[tuple[list[Event], bool]]:
    """Whether the caller lets the retry be made, and the events that tell it."""
    attempt, category = session.spent.retries, failure.trouble.category
    answer = yield Ask("should_retry", _question(session, failure))
    start = RetryFnStart(attempt, category, default_should_retry=True)
    if answer.error is not None:
        return [start, RetryFnError(attempt, category, answer.error, False, answer.duration_ms)], False
    agreed = answer.value is True
    return [start, RetryFnResult(attempt, category, answer.value, agreed, answer.duration_ms)], agreed


def _question(session: Standing, failure: Failure) -> dict[str, Any]:
    """What the caller's expressions are told."""
    error, tally = failure.error, session.tally
    return {
        "error": {
            "code": error.code,
            "category": error.category,
            "message": error.message[:_MESSAGE],
            "status": failure.status,
            "type": failure.word and failure.word[:_MESSAGE],
        },
        "category": error.category,
        "attempt": session.spent.retries,
        "state": {
            "token_count": session.token_count,
            "content_length": session.length,
            "fallback_index": session.fallback_index,
            "model_retries": tally.model_retries,
            "network_retries": tally.network_retries,
            "checkpoint_length": sum(map(len, session.draft.texts[: session.resume_at])),
            "elapsed_ms": round(session.now_ms - tally.began_ms),
        },
    }


def _say(session: Standing, failure: Failure, verdict: Verdict, vetoed: tuple[Event, ...]) -> Steps[None]:
    error = failure.error
    events: list[Event] = [
        _error_event(session, failure, error, verdict),
        *session.outage.failed(failure, opened=session.opened, now_ms=session.now_ms),
        *vetoed,
    ]
    if verdict.give_up is not None:
        events.append(
            RetryGiveUp(
                attempts=session.spent.retries,
                last_error=error.message,
                attempt=session.attempt,
                max_attempts=verdict.max_attempts,
                reason=verdict.give_up,
            )
        )
    will_retry = verdict.recovery is Recovery.RETRY
    will_fall_back = verdict.recovery is Recovery.FALLBACK
    events[-1].then(Callback("on_error", (error.wire(), will_retry, will_fall_back)))
    yield from events


def _error_event(session: Standing, failure: Failure, error: StreamError, verdict: Verdict) -> Error:
    max_retries = session.options.retry.max_retries
    return Error(
        error=error.message,
        code_=error.code,
        error_code=error.code,
        failure_type=failure.trouble.failure_type,
        recovery_strategy=verdict.recovery.value,
        policy={
            "retryEnabled": max_retries > 0,
            "fallbackEnabled": session.models > 1,
            "maxRetries": max_retries,
            "maxFallbacks": session.models - 1,
            "attempt": session.attempt,
            "fallbackIndex": session.fallback_index,
        },
    )


def _back_off(session: Standing, failure: Failure, verdict: Verdict, asked: list[Event]) -> Steps[None]:
    session.enter(State.RETRYING)
    session.budget.take()
    question = _question(session, failure)
    pause_ms = _pause_ms(session, failure.retry_after_ms)
    session.spent.retries += 1
    if failure.trouble.spends is Spends.BOTH:
        session.spent.attempts += 1
        session.tally.model_retries += 1
    else:
        session.tally.network_retries += 1
    count, reason, limit = session.spent.retries, failure.trouble.reason or "", verdict.max_attempts
    yield RetryStart(limit, failure.trouble.category)
    yield from asked
    if session.options.retry.calculate_delay is not None:
        pause_ms = yield from _callers_pause_ms(session, failure, question, pause_ms)
    yield RetryAttempt(count, reason, pause_ms, limit).then(Callback("on_retry", (count, reason)))
    if pause_ms > 0:
        session.limits.pause(session.now_ms + pause_ms)
    else:
        yield from retry(session)


def _callers_pause_ms(
    session: Standing, failure: Failure, question: dict[str, Any], otherwise_ms: int
) -> Steps[int]:
    """The pause that the caller's expression gives; `otherwise_ms` where it gives no number."""
    options = session.options.retry
    more = {
        "base_delay_ms": options.base_delay_ms,
        "max_delay_ms": options.max_delay_ms,
        "retry_after_ms": failure.retry_after_ms,
    }
    answer = yield Ask("calculate_delay", question | more)
    value, error = answer.value, answer.error
    if error is None and not _is_pause(value):
        error = f"it gives {str(value)[:_VALUE]}, which is no number of milliseconds from 0 on"
    if error is not None:
        attempt, category = session.spent.retries - 1, failure.trouble.category
        yield RetryFnError(attempt, category, f"calculate_delay: {error}", True, answer.duration_ms)
        return otherwise_ms
    return with_retry_after(min(value, LONGEST_PAUSE_MS), failure.retry_after_ms, options.max_retry_after_ms)


def _is_pause(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _pause_ms(session: Standing, retry_after_ms: int | None) -> int:
    """How long the strategy, or the server, wants to wait."""
    options = session.options.retry
    session.last_pause_ms = backoff_ms(
        options.strategy,
        retries=session.spent.retries,
        base_ms=options.base_delay_ms,
        cap_ms=options.max_delay_ms,
        last_ms=session.last_pause_ms,
        draw=session.draw,
    )
    return with_retry_after(session.last_pause_ms, retry_after_ms, options.max_retry_after_ms)
