"""Time limits of an attempt (40–59)."""

from __future__ import annotations

from app.core.events.base import Event, event


@event("TIMEOUT_START", 40)
class TimeoutStart(Event):
    """The limit for the first token runs, since STREAM_INIT."""

    timeout_type: str
    """Always `initial`."""
    configured_ms: int


@event("TIMEOUT_RESET", 41)
class TimeoutReset(Event):
    """A token arrived and the limit between tokens begins anew.

    Emitted after the first token of an attempt; with `events: "full"` after every one.
    """

    timeout_type: str
    """Always `inter`."""
    configured_ms: int
    token_index: int
    """Position of the token in the text, from 0."""


@event("TIMEOUT_TRIGGERED", 42)
class TimeoutTriggered(Event):
    """A limit struck."""

    timeout_type: str
    """`initial` or `inter`."""
    elapsed_ms: int
    """The configured limit."""
    configured_ms: int
