"""What a caller can choose about a stream, as plain values with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from app.core.drift.monitor import DriftOptions
from app.core.guardrails.base import Rule
from app.core.lifecycle.delays import Strategy

REASONS: Final = frozenset(
    {
        "network_error",
        "timeout",
        "rate_limit",
        "server_error",
        "incomplete",
        "zero_output",
        "guardrail_violation",
        "drift",
    }
)
"""Everything that a retry can be made for."""


@dataclass(frozen=True, slots=True)
class TimeoutOptions:
    """Time limits in milliseconds; None means none."""

    initial_ms: int | None = 5_000
    """From STREAM_INIT to the first text, reasoning or tool-call fragment."""
    inter_ms: int | None = 10_000
    """Between two signs of life after that."""
    total_ms: int | None = None
    """From the beginning of the session; when it strikes, nothing is tried again."""
    alive_ms: int = 30_000
    """How long keep-alives alone count as signs of life, before the beginning and after each progress."""


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """How often and when the same model is asked again; both limits begin anew on a fallback."""

    attempts: int = 3
    """Retries after faults of the answer itself."""
    max_retries: int = 6
    """All retries, those included."""
    base_delay_ms: int = 1_000
    max_delay_ms: int = 10_000
    strategy: Strategy = Strategy.FIXED_JITTER
    retry_on: frozenset[str] = REASONS
    """The reasons for which a retry is made at all."""
    max_retry_after_ms: int = 60_000
    """Up to which pause a server's `Retry-After` is honoured."""
    should_retry: str | None = None
    """The caller's expression that can veto a retry; the machine only asks for its value."""
    calculate_delay: str | None = None
    """The caller's expression for the pause in milliseconds; likewise."""


@dataclass(frozen=True, slots=True)
class ContinuationOptions:
    """How an attempt goes on from the text that a failed one left."""

    checkpoint_every: int = 20
    """Tokens between two checkpoints."""
    min_overlap: int = 2
    """Code points; a shorter repetition of the checkpoint's end is part of the answer."""
    max_overlap: int = 500
    """Code points; how much of the checkpoint's end is looked for in the answer."""
    prompt: str | None = None
    """What the model is told; None is the default."""


NO_TIMEOUTS: Final = TimeoutOptions(initial_ms=None, inter_ms=None)
NO_RETRIES: Final = RetryOptions(attempts=0, max_retries=0)


@dataclass(frozen=True, slots=True)
class LifecycleOptions:
    """One stream's choices."""

    timeout: TimeoutOptions = field(default_factory=TimeoutOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    continuation: ContinuationOptions | None = None
    """None starts every attempt afresh."""
    guardrails: tuple[Rule, ...] = ()
    guardrails_every: int = 15
    """Tokens between two looks of the streaming rules."""
    drift: DriftOptions | None = None
    """None looks for no drift."""
    drift_every: int = 25
    """Tokens between two looks of the detectors."""
    detect_zero_tokens: bool = True
    """Whether an answer without content is a fault."""
    events: Literal["standard", "full"] = "standard"
    """`full` adds the events that repeat without news."""
    max_model_calls: int = 20
    """Openings allowed to the whole run; the machine is told how many are left."""
