"""What each way of failing is called, and what may follow from it, as data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from app.core.faults import Fault, FaultKind
from app.core.lifecycle.effects import StreamError


class Spends(Enum):
    """Which budgets of a model's stream a retry is taken from."""

    NOTHING = "nothing"
    """It is never retried."""
    RETRIES = "max_retries"
    """The network's or the server's trouble: `max_retries` alone."""
    BOTH = "attempts and max_retries"
    """The answer's own trouble: one of each."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One row of the table."""

    what: str
    """For readers."""
    code: str
    category: str
    failure_type: str
    reason: str | None = None
    """Why a retry is made; None when none ever is."""
    spends: Spends = Spends.NOTHING
    fallback: bool = True
    """Whether another model may be asked instead."""
    network: bool = False
    """Whether NETWORK_ERROR is said too."""

    @property
    def retryable(self) -> bool:
        """Whether asking again may help."""
        return self.spends is not Spends.NOTHING


NETWORK: Final = Trouble(
    "connection refused, reset, DNS, broken pipe",
    "NETWORK_ERROR",
    "network",
    "network",
    "network_error",
    Spends.RETRIES,
    network=True,
)
TLS: Final = Trouble("TLS, certificate", "NETWORK_ERROR", "fatal", "network", network=True)
INITIAL_TIMEOUT: Final = Trouble(
    "initial limit", "INITIAL_TOKEN_TIMEOUT", "transient", "timeout", "timeout", Spends.RETRIES
)
INTER_TIMEOUT: Final = Trouble(
    "inter-token limit", "INTER_TOKEN_TIMEOUT", "transient", "timeout", "timeout", Spends.RETRIES
)
RATE_LIMIT: Final = Trouble("429", "RATE_LIMITED", "transient", "model", "rate_limit", Spends.RETRIES)
NO_TURN: Final = Trouble(
    "the model's limits here left it no turn in time", "RATE_LIMITED", "transient", "model"
)
OUT_OF_ORDER: Final = Trouble(
    "the model's circuit is open: it has failed too often of late", "PROVIDER_ERROR", "transient", "model"
)
SERVER: Final = Trouble(
    "408, 5xx, overloaded", "PROVIDER_ERROR", "transient", "model", "server_error", Spends.RETRIES
)
TRUNCATED: Final = Trouble(
    "end without finish reason and without end mark",
    "STREAM_TRUNCATED",
    "model",
    "model",
    "incomplete",
    Spends.BOTH,
)
UNKNOWN: Final = Trouble(
    "any other error; in-stream error object without status",
    "PROVIDER_ERROR",
    "model",
    "unknown",
    "server_error",
    Spends.BOTH,
)
REJECTED: Final = Trouble(
    "401, 403, other 4xx, in-stream error with such a status", "PROVIDER_ERROR", "fatal", "model"
)
ZERO_OUTPUT: Final = Trouble(
    "zero output", "ZERO_OUTPUT", "content", "zero_output", "zero_output", Spends.BOTH
)
DRIFT: Final = Trouble("drift", "DRIFT_DETECTED", "content", "model", "drift", Spends.BOTH)
GUARDRAIL: Final = Trouble(
    "guardrail error, recoverable",
    "GUARDRAIL_VIOLATION",
    "content",
    "model",
    "guardrail_violation",
    Spends.BOTH,
)
FATAL_GUARDRAIL: Final = Trouble(
    "guardrail fatal, or error not recoverable",
    "FATAL_GUARDRAIL_VIOLATION",
    "content",
    "model",
    fallback=False,
)
PREFIX_REFUSED: Final = Trouble(
    "400 or 422 to a request to go on from a checkpoint",
    "PROVIDER_ERROR",
    "transient",
    "model",
    "server_error",
    Spends.RETRIES,
)
TOOL_ARGUMENTS: Final = Trouble(
    "malformed or truncated tool arguments in the stream",
    "INVALID_TOOL_ARGUMENTS",
    "model",
    "tool",
    "incomplete",
    Spends.BOTH,
)
REFUSAL: Final = Trouble("refusal", "MODEL_REFUSAL", "model", "model", fallback=False)
CONTENT_FILTER: Final = Trouble(
    "content filter with nothing usable", "CONTENT_FILTERED", "model", "model", fallback=False
)
OUTPUT_TRUNCATED: Final = Trouble(
    "cut by the token limit with nothing usable", "OUTPUT_TRUNCATED", "model", "model", fallback=False
)
NO_ADAPTER: Final = Trouble("no adapter", "ADAPTER_NOT_FOUND", "internal", "unknown")
NOT_A_STREAM: Final = Trouble("not a stream", "INVALID_STREAM", "internal", "unknown")
NOT_ENABLED: Final = Trouble("option not enabled", "FEATURE_NOT_ENABLED", "internal", "unknown")
NOT_ASKED: Final = Trouble(
    "a request that cannot be made or sent; a bug in an adapter", "PROVIDER_ERROR", "internal", "unknown"
)
NO_CALLS_LEFT: Final = Trouble(
    "no model call left to begin with", "MODEL_CALLS_EXHAUSTED", "provider", "unknown", fallback=False
)
ABORTED: Final = Trouble("abort", "STREAM_ABORTED", "provider", "abort", fallback=False)
DEADLINE: Final = Trouble("deadline", "DEADLINE_EXCEEDED", "provider", "abort", fallback=False)
EXHAUSTED: Final = Trouble(
    "every model failed and there was a fallback",
    "ALL_STREAMS_EXHAUSTED",
    "provider",
    "unknown",
    fallback=False,
)

TROUBLES: Final = (
    NETWORK,
    TLS,
    INITIAL_TIMEOUT,
    INTER_TIMEOUT,
    RATE_LIMIT,
    NO_TURN,
    OUT_OF_ORDER,
    SERVER,
    TRUNCATED,
    UNKNOWN,
    REJECTED,
    PREFIX_REFUSED,
    GUARDRAIL,
    FATAL_GUARDRAIL,
    DRIFT,
    TOOL_ARGUMENTS,
    ZERO_OUTPUT,
    REFUSAL,
    CONTENT_FILTER,
    OUTPUT_TRUNCATED,
    NO_ADAPTER,
    NOT_A_STREAM,
    NOT_ENABLED,
    NOT_ASKED,
    NO_CALLS_LEFT,
    ABORTED,
    DEADLINE,
    EXHAUSTED,
)
"""The whole table."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, with all that follows from it."""

    trouble: Trouble
    message: str
    word: str | None = None
    """Short machine word of the fault, such as `connection_reset`."""
    retry_after_ms: int | None = None
    """How long the server asked us to wait."""
    detail: dict[str, Any] | None = None
    position: int | None = None
    """Where in the answer the fault lies, in code points; None where it has no place."""
    status: int | None = None
    """The HTTP status; that of `detail` may be the server's own word for something else."""

    @property
    def error(self) -> StreamError:
        """The failure in the words of the API."""
        row = self.trouble
        return StreamError(row.code, self.message, row.category, row.retryable, self.detail or {})


def failure_of(fault: Fault, *, opened: bool) -> Failure:
    """Classify what an adapter reports; `opened` says whether its answer had begun."""
    detail = dict(fault.detail)
    named = {"status": fault.status, "type": fault.type or None, "provider_code": fault.provider_code}
    detail.update((key, value) for key, value in named.items() if value is not None)
    trouble, word = _trouble(fault, opened), fault.type or None
    return Failure(trouble, fault.message, word, fault.retry_after_ms, detail, status=fault.status)


_INTERNAL_WORDS: Final = {
    "adapter_not_found": NO_ADAPTER,
    "invalid_stream": NOT_A_STREAM,
    "feature_not_enabled": NOT_ENABLED,
}


def _trouble(fault: Fault, opened: bool) -> Trouble:
    match fault.kind:
        case FaultKind.NETWORK:
            return NETWORK
        case FaultKind.TLS:
            return TLS
        case FaultKind.HELD:
            return OUT_OF_ORDER if fault.type == "circuit_open" else NO_TURN
        case FaultKind.INTERNAL:
            return _INTERNAL_WORDS.get(fault.type, NOT_ASKED)
        case FaultKind.MALFORMED:
            return UNKNOWN if opened else NOT_A_STREAM
        case FaultKind.STATUS | FaultKind.IN_STREAM:
            return _by_words(fault) if fault.status is None else _by_status(fault.status)


def _by_status(status: int) -> Trouble:
    if status == 429:
        return RATE_LIMIT
    if status == 408 or status >= 500:
        return SERVER
    return REJECTED if 400 <= status < 500 else UNKNOWN


# An underscore or a hump is a border, a letter is none: RateLimitError is found, "corporate limit" is not.
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_OVERLOADED: Final = re.compile(r"(?<![a-z])overloaded(?![a-z])", re.IGNORECASE)
_RATE_LIMIT: Final = re.compile(
    r"(?<![a-z])(?:rate[ _-]?limit(?:ed)?|too[ _-]?many[ _-]?requests)(?![a-z])", re.IGNORECASE
)


def _by_words(fault: Fault) -> Trouble:
    """By the error's own type; by its text only where it has no type."""
    words = _HUMP.sub("_", fault.type or fault.message)
    if _RATE_LIMIT.search(words):
        return RATE_LIMIT
    return SERVER if _OVERLOADED.search(words) else UNKNOWN


def exhausted(causes: Sequence[StreamError]) -> StreamError:
    """Every model failed; `causes` holds the last error of each."""
    return StreamError(
        EXHAUSTED.code,
        f"all {len(causes)} models failed; the last one: {causes[-1].message}",
        EXHAUSTED.category,
        retryable=any(cause.retryable for cause in causes),
        detail={"causes": [cause.wire() for cause in causes]},
    )
