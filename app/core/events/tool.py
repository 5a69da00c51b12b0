"""Tool calls, from the model's wish to the outcome (160–179).

All events of one call carry the same `toolCallId`: the provider's for a native call, else the call's own.
Those that say OBSERVED are of tools that a model used by itself: no gate, hook or permission was asked, and
there is no function call of them.
"""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event, event


@event("TOOL_REQUESTED", 160)
class ToolRequested(Event):
    """A tool call is wanted; once per call, with complete arguments."""

    tool_name: str
    tool_call_id: str
    arguments: dict[str, Any]
    replaced: int | None = None
    """How many characters of a model's arguments could not be stored and became U+FFFD; absent where none."""


@event("TOOL_START", 161, per_stream=False)
class ToolStart(Event):
    """The tool begins to run."""

    tool_call_id: str
    tool_name: str
    call_id: str
    """The call's own id: the key of its records and its idempotency key."""
    origin: dict[str, str] | None = None
    """Of a tool of an MCP server: `server`, and `tool`, its name there."""


@event("TOOL_RESULT", 162, per_stream=False)
class ToolResult(Event):
    """The tool gave a result."""

    tool_call_id: str
    result: Any
    duration_ms: int
    call_id: str


@event("TOOL_ERROR", 163, per_stream=False)
class ToolError(Event):
    """The call failed; it may never have started."""

    tool_call_id: str
    error: str
    """`<type>: <message>`."""
    duration_ms: int
    """0 where the tool never ran."""
    call_id: str


@event("TOOL_COMPLETED", 164, per_stream=False)
class ToolCompleted(Event):
    """The call is over."""

    tool_call_id: str
    status: str
    """`success` or `error`."""
    call_id: str


@event("TOOL_OBSERVED", 170)
class ToolObserved(Event):
    """The model began to use a tool of its own, as it says itself; the service ran nothing."""

    tool_call_id: str
    tool_name: str
    arguments: Any
    """As the model tells them; cut to a text where they are long."""


@event("TOOL_OUTCOME_OBSERVED", 171)
class ToolOutcomeObserved(Event):
    """What came of a tool that the model used by itself, as it says itself."""

    tool_call_id: str
    output: Any
    """As the model tells it; cut to a text where it is long."""
    is_error: bool
