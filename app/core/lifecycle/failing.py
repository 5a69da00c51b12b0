"""Handlers for an attempt that failed: say so, then try again, go on to the next model, or end."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.events.base import Callback, Event
from app.core.events.retry import RetryAttempt, RetryGiveUp, RetryStart
from app.core.events.session import Error
from app.core.lifecycle.closing import halt
from app.core.lifecycle.delays import backoff_ms, with_retry_after
from app.core.lifecycle.effects import Effect, StreamError
from app.core.lifecycle.faults import Failure, Spends
from app.core.lifecycle.opening import fall_back, retry
from app.core.lifecycle.standing import Standing
from app.core.lifecycle.table import State
from app.core.lifecycle.verdict import Recovery, Verdict, judge


def fail(session: Standing, failure: Failure, now_ms: float) -> Iterator[Effect]:
    """The present attempt failed."""
    verdict = judge(
        failure.trouble,
        session.spent,
        session.options.retry,
        models_left=session.models - session.fallback_index - 1,
        calls_left=session.calls_left,
    )
    yield from _say(session, failure, verdict, now_ms)
    match verdict.recovery:
        case Recovery.RETRY:
            yield from _back_off(session, failure, verdict, now_ms)
        case Recovery.FALLBACK:
            yield from fall_back(session, failure, now_ms)
        case Recovery.HALT:
            yield from halt(session, failure, verdict, now_ms)


def _say(session: Standing, failure: Failure, verdict: Verdict, now_ms: float) -> Iterator[Effect]:
    error = failure.error
    events: list[Event] = [
        _error_event(session, failure, error, verdict),
        *session.outage.failed(failure, opened=session.opened, now_ms=now_ms),
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


def _back_off(session: Standing, failure: Failure, verdict: Verdict, now_ms: float) -> Iterator[Effect]:
    session.enter(State.RETRYING)
    pause_ms = _pause_ms(session, failure.retry_after_ms)
    session.spent.retries += 1
    if failure.trouble.spends is Spends.BOTH:
        session.spent.attempts += 1
        session.tally.model_retries += 1
    else:
        session.tally.network_retries += 1
    count, reason, limit = session.spent.retries, failure.trouble.reason or "", verdict.max_attempts
    yield RetryStart(limit, failure.trouble.category)
    yield RetryAttempt(count, reason, pause_ms, limit).then(Callback("on_retry", (count, reason)))
    if pause_ms > 0:
        session.limits.pause(now_ms + pause_ms)
    else:
        yield from retry(session, now_ms)


def _pause_ms(session: Standing, retry_after_ms: int | None) -> int:
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
