"""A stream that is ended from outside (140–159)."""

from __future__ import annotations

from app.core.events.base import Event, event


@event("ABORT_REQUESTED", 140)
class AbortRequested(Event):
    """Somebody wants the stream to end."""

    source: str
    """`user` for a cancelled run, `timeout` for the run's deadline, `shutdown` for a stopping process."""


@event("ABORT_COMPLETED", 141)
class AbortCompleted(Event):
    """The stream is closed; this much of its text had arrived."""

    token_count: int
    content_length: int
    """In code points."""
