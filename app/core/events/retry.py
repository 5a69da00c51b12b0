"""Asking the same model again (80–99)."""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event, event


@event("RETRY_START", 80)
class RetryStart(Event):
    """A retry is due."""

    max_attempts: int
    """The limit that this kind of fault is measured against."""
    category: str
    """network, transient, model or content; `recovery` where a process was lost."""


@event("RETRY_ATTEMPT", 81)
class RetryAttempt(Event):
    """The model will be asked again after a pause."""

    attempt: int
    """Which retry of this model's stream, from 1."""
    reason: str
    delay_ms: int
    """The pause before the next attempt; 0 means at once."""
    max_attempts: int
    """As in RETRY_START."""


@event("RETRY_END", 82)
class RetryEnd(Event):
    """A stream that had been retried came to a good end."""

    success: bool
    """Always true."""
    attempts: int
    """Retries of this model's stream."""
    attempt: int
    """The attempt that succeeded, from 1."""


@event("RETRY_GIVE_UP", 83)
class RetryGiveUp(Event):
    """This model is not asked again."""

    attempts: int
    """Retries of this model's stream."""
    last_error: str
    """Message of the error that ended it."""
    attempt: int
    """The attempt that failed, from 1."""
    max_attempts: int
    """The limit that was reached, 0 where this kind of fault is never retried."""
    reason: str
    """`not_retryable`, `retries_exhausted`, `not_in_retry_on`, `vetoed` or `model_calls_exhausted`."""


@event("RETRY_FN_START", 84)
class RetryFnStart(Event):
    """The caller's should_retry is asked; only where a retry is due without it."""

    attempt: int
    """Retries of this model's stream so far: 0, 1 …"""
    category: str
    default_should_retry: bool
    """Always true: it can only veto."""


@event("RETRY_FN_RESULT", 85)
class RetryFnResult(Event):
    """It has answered."""

    attempt: int
    category: str
    user_result: Any
    """What it gave; anything but true is a veto."""
    final_should_retry: bool
    duration_ms: float


@event("RETRY_FN_ERROR", 86)
class RetryFnError(Event):
    """An expression of the caller's failed: should_retry, a veto, or calculate_delay, none."""

    attempt: int
    category: str
    error: str
    final_should_retry: bool
    """Whether the retry is made nevertheless."""
    duration_ms: float
