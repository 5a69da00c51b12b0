"""What follows from a failed attempt: the same model again, the next one, or the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.core.lifecycle.faults import Spends, Trouble
from app.core.lifecycle.options import RetryOptions


class Recovery(StrEnum):
    """The three ways on; the words are those of ERROR's `recoveryStrategy`."""

    RETRY = "retry"
    FALLBACK = "fallback"
    HALT = "halt"


@dataclass(slots=True)
class Spent:
    """Retries already made on one model's stream."""

    retries: int = 0
    """All of them."""
    attempts: int = 0
    """Those that faults of the answer itself were the reason for."""
    recoveries: int = 0
    """Retries because a process was lost; they are measured against nothing here."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows, and why no retry does."""

    recovery: Recovery
    max_attempts: int
    """The limit that the fault is measured against; 0 when it is never retried."""
    give_up: str | None = None
    """Why the model is not asked again; None when it is."""
    cut_short: bool = False
    """True when only the want of model calls rules out a retry or a fallback."""


def judge(
    trouble: Trouble,
    spent: Spent,
    options: RetryOptions,
    *,
    models_left: int,
    calls_left: int,
    vetoed: bool = False,
) -> Verdict:
    """Decide what follows from `trouble`; `models_left` counts the models after this one, `vetoed` says that
    the caller does not want the retry.
    """
    limit = _limit(trouble, options)
    give_up = "vetoed" if vetoed else _give_up(trouble, spent, options)
    if give_up is None:
        recovery = Recovery.RETRY
    elif trouble.fallback and models_left > 0:
        recovery = Recovery.FALLBACK
    else:
        recovery = Recovery.HALT
    if calls_left < 1 and recovery is not Recovery.HALT:
        return Verdict(Recovery.HALT, limit, "model_calls_exhausted", cut_short=True)
    return Verdict(recovery, limit, give_up)


def _limit(trouble: Trouble, options: RetryOptions) -> int:
    match trouble.spends:
        case Spends.NOTHING:
            return 0
        case Spends.RETRIES:
            return options.max_retries
        case Spends.BOTH:
            return options.attempts


def _give_up(trouble: Trouble, spent: Spent, options: RetryOptions) -> str | None:
    if not trouble.retryable:
        return "not_retryable"
    if trouble.reason not in options.retry_on:
        return "not_in_retry_on"
    used_up = spent.retries >= options.max_retries or (
        trouble.spends is Spends.BOTH and spent.attempts >= options.attempts
    )
    return "retries_exhausted" if used_up else None
