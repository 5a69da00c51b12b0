"""Trouble with the connection, and its end (60–79)."""

from __future__ import annotations

from app.core.events.base import Event, event


@event("NETWORK_ERROR", 60)
class NetworkError(Event):
    """The attempt failed because of the connection, not of the answer."""

    error: str
    retryable: bool
    code_: str | None = None
    """Short machine word, for example `connection_reset`."""


@event("CONNECTION_DROPPED", 61)
class ConnectionDropped(Event):
    """The connection was lost after the answer had begun."""

    reason: str
    """Short machine word where there is one, else the message."""


@event("CONNECTION_RESTORED", 62)
class ConnectionRestored(Event):
    """A model server answers again after a dropped connection."""

    duration_ms: int
    """Since the connection was dropped."""


@event("NETWORK_RECOVERY", 63)
class NetworkRecovery(Event):
    """The first token after a network error arrived."""

    attempt_count: int
    """Failed attempts since the last token before it."""
    duration_ms: int
    """Since the first of those network errors."""
