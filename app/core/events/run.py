"""What happens to a run as a whole (260–279); these events belong to no stream."""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event, event


@event("RUN_QUEUED", 260, per_stream=False)
class RunQueued(Event):
    """The run waits for its branch or for a process."""


@event("RUN_STARTED", 261, per_stream=False)
class RunStarted(Event):
    """A process has taken the run up."""

    position: int | None = None
    """Where in the conversation the run begins: its first message comes there. Absent without a branch."""


@event("RUN_RECOVERED", 262, per_stream=False)
class RunRecovered(Event):
    """Another process has taken the run over from one that was lost, or stopped, and goes on with it."""

    epoch: int
    """The new holder's number."""
    cause: str
    """`lease_expired`, or `shutdown` where the process gave the run up in good order."""


@event("RESULT_VALIDATED", 263, per_stream=False)
class ResultValidated(Event):
    """The caller's policy was applied to the result, before any tool runs from it."""

    ok: bool
    kind: str
    """What was checked, or why nothing was."""
    errors: list[str]


@event("RUN_WAITING", 268, per_stream=False)
class RunWaiting(Event):
    """Nothing more can be done until somebody acts; no process holds the run meanwhile."""

    reason: str
    """`approval` where a person has to decide, `client_result` where only clients have to bring results."""
    until: str
    """When it goes on in any case, RFC 3339."""


@event("RUN_COMPLETED", 264, per_stream=False)
class RunCompleted(Event):
    """The run has its result."""

    status: str
    usage: dict[str, Any] | None
    """Token counts of all its attempts, estimates included; null where it asked no model."""
    error: dict[str, Any] | None
    """Always null."""


@event("RUN_FAILED", 265, per_stream=False)
class RunFailed(Event):
    """The run ended without a result."""

    status: str
    usage: dict[str, Any] | None
    error: dict[str, Any] | None
    """`code`, `message`, `category`, `retryable` and, where it helps, `detail`."""


@event("RUN_CANCELLED", 266, per_stream=False)
class RunCancelled(Event):
    """The run was ended from outside."""

    status: str
    usage: dict[str, Any] | None
    error: dict[str, Any] | None


@event("RUN_EXPIRED", 267, per_stream=False)
class RunExpired(Event):
    """The run was never taken up in time."""

    status: str
    usage: dict[str, Any] | None
    error: dict[str, Any] | None
