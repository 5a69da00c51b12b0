"""A stream from its beginning to its end (1–19)."""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event, event


@event("TOKEN", 1)
class Token(Event):
    """A piece of the visible answer arrived."""

    text: str
    """Never empty."""


@event("SESSION_START", 2)
class SessionStart(Event):
    """A stream begins; once per stream, before anything else of it."""

    attempt: int
    """Always 1."""
    is_retry: bool
    """Always false."""
    is_fallback: bool
    """Always false."""
    purpose: str
    """What the stream is for: `main`, `repair` or `voter`. A client shows `main`."""
    index: int | None = None
    """Which voter of a consensus, from 0."""


@event("ATTEMPT_START", 3)
class AttemptStart(Event):
    """The same model is asked again."""

    attempt: int
    """Which attempt on this model, from 2."""
    is_retry: bool
    """Always true."""
    is_fallback: bool
    """Whether the model is a fallback."""
    content_offset: int
    """How many code points of the stream's text stay; the rest is void."""


@event("STREAM_INIT", 4)
class StreamInit(Event):
    """The model server is about to be asked; the initial time limit counts from here."""


@event("STREAM_READY", 5)
class StreamReady(Event):
    """The model server accepted the request."""


@event("FINALIZATION_START", 6)
class FinalizationStart(Event):
    """The answer has ended and is complete; the final checks begin."""


@event("FINALIZATION_END", 7)
class FinalizationEnd(Event):
    """The final checks are done, well or ill."""


@event("COMPLETE", 8, refers=True)
class Complete(Event):
    """The stream has its answer."""

    token_count: int
    """TOKEN events that make up the answer."""
    content_length: int
    """Its length in code points."""
    state: dict[str, Any] | None = None
    """What on_complete is given."""
    finish_reason: str | None = None
    """Why the model stopped, in the service's words; absent when it did not say or the word is not known."""
    finish_reason_raw: str | None = None
    """The same in the provider's word."""


@event("ERROR", 9)
class Error(Event):
    """An attempt failed."""

    error: str
    """For people; holds no credential."""
    code_: str
    """Stable word for programs."""
    error_code: str
    """The same as `code`."""
    failure_type: str
    """network, model, tool, timeout, abort, zero_output or unknown."""
    recovery_strategy: str
    """What follows: retry, fallback or halt."""
    policy: dict[str, Any]
    """What was allowed: retryEnabled, fallbackEnabled, maxRetries, maxFallbacks, attempt, fallbackIndex."""


@event("SESSION_END", 10)
class SessionEnd(Event):
    """The stream is over."""

    success: bool
    total_attempts: int
    """Openings over all models."""


@event("SESSION_SUMMARY", 11)
class SessionSummary(Event):
    """The figures of the whole session; the last event of a stream."""

    duration: int
    """From SESSION_START to the end, in milliseconds."""
    token_count: int
    """TOKEN events of the text that stands."""
    start_ts: int
    """When the session began, on the clock that the stream was driven with."""
    end_ts: int
    """When it ended, on the same clock."""
    drift_detected: bool
    guardrail_violations: int
    fallback_depth: int
    """Highest fallback index used."""
    retry_count: int
    """Retries over all models."""
    checkpoints_created: int


@event("TURN_PAUSED", 12)
class TurnPaused(Event):
    """The provider interrupted its own answer, and goes on when it is given it back: STREAM_INIT follows.

    It is no retry: the text stands, and the attempt stays the same.
    """

    reason: str
    """The provider's word for it."""
    token_count: int
    """TOKEN events of the answer so far."""
