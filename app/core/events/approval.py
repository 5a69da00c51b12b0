"""What gates and people decide about tool calls (280–299); these events belong to no stream."""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event, event


@event("GATE_DENIED", 280, per_stream=False)
class GateDenied(Event):
    """A gate did not allow a call; its tool never ran."""

    tool_call_id: str
    tool_name: str
    call_id: str
    by: str
    """`project.gate` or `branch.gate`."""
    rule: str | None
    """JSON Pointer to what decided, within that gate; null for a gate that could not be asked."""
    reason: str | None
    arguments_digest: str
    """SHA-256, in hex, of the arguments that were judged."""


@event("APPROVAL_REQUESTED", 281, per_stream=False)
class ApprovalRequested(Event):
    """A person has to decide whether a call may run."""

    tool_call_id: str
    tool_name: str
    call_id: str
    approval_id: str
    arguments: dict[str, Any]
    arguments_digest: str
    by: str
    """What asks: `project.gate`, `branch.gate`, `project.permissions` or `branch.permissions`."""
    reason: str | None
    expires_at: str
    """When nobody can decide any more, RFC 3339."""


@event("APPROVAL_DECIDED", 282, per_stream=False)
class ApprovalDecided(Event):
    """It was decided, or the time for that is over."""

    tool_call_id: str
    tool_name: str
    call_id: str
    approval_id: str
    decision: str
    """`approve`, `deny`, `edit` or `expired`."""
    decided_by: str | None
    """Id of the key; null in development mode, and when the time was over."""
    reason: str | None
    arguments_digest: str
    """Of the arguments that may run now, or that may not."""
