"""How one call can end, and what each end means for the records of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

GATE_DENIED = "GATE_DENIED"
APPROVAL_DENIED = "APPROVAL_DENIED"
APPROVAL_EXPIRED = "APPROVAL_EXPIRED"
CANCELLED = "CANCELLED"
OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"

DENIED_BY_GATE = "denied by governance gate"

MAX_MESSAGE = 4_096
"""Code points of an error message that are kept."""


class CallStatus(StrEnum):
    """Where a function call stands."""

    PENDING = "pending"
    """It waits: for an approval, or for a client to bring the result."""
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Nothing ran, because somebody may and did say no."""
    CANCELLED = "cancelled"
    ABORTED = "aborted"
    """The process was lost while it ran; what it did is unknown."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The tool gave a result, which may be None."""

    value: Any
    """A JSON value, as `jsonable.output_of` makes it."""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The call ended with an error: the tool's, a hook's, or because it never could run."""

    type: str
    message: str
    retryable: bool | None = None
    """Whether the tool says that a repeat may help; None when it does not say."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A gate or a person did not allow the call."""

    reason: str = ""
    type: str = GATE_DENIED


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The run or a sibling ended while the call was on its way."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The process that made the call is gone, and so is the answer."""


Verdict = Succeeded | Failed | Denied | Cancelled | Lost


@dataclass(frozen=True, slots=True)
class Fault:
    """What stands in the records of a call that did not succeed."""

    type: str
    message: str
    retryable: bool | None = None

    def __str__(self) -> str:
        """As messages and results say it."""
        return f"{self.type}: {self.message}"


def status_of(verdict: Verdict) -> CallStatus:
    """The status of the function call."""
    match verdict:
        case Succeeded():
            return CallStatus.COMPLETED
        case Failed():
            return CallStatus.FAILED
        case Denied():
            return CallStatus.SKIPPED
        case Cancelled():
            return CallStatus.CANCELLED
        case Lost():
            return CallStatus.ABORTED
        case _:
            assert_never(verdict)


def fault_of(verdict: Verdict) -> Fault | None:
    """The error of the call, None when it succeeded."""
    match verdict:
        case Succeeded():
            return None
        case Failed(type, message, retryable):
            return Fault(type, message, retryable)
        case Denied(reason, type):
            return Fault(type, reason or DENIED_BY_GATE)
        case Cancelled():
            return Fault(CANCELLED, "the call was cancelled")
        case Lost():
            return Fault(OUTCOME_UNKNOWN, "the process was lost; whether the tool took effect is unknown")
        case _:
            assert_never(verdict)
