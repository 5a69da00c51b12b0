"""Going on to another model (100–119)."""

from __future__ import annotations

from app.core.events.base import Event, event


@event("FALLBACK_START", 100)
class FallbackStart(Event):
    """The next model of the list takes over."""

    from_index: int
    to_index: int
    reason: str
    """Always `previous_failed`."""
    content_offset: int
    """How many code points of the stream's text stay; the rest is void."""


@event("FALLBACK_MODEL_SELECTED", 101)
class FallbackModelSelected(Event):
    """Which model it is."""

    index: int
    """Position in the list of models; 0 is the primary."""
    reason: str
    """As in FALLBACK_START."""


@event("FALLBACK_END", 102)
class FallbackEnd(Event):
    """A fallback came to its end."""

    index: int
    success: bool
    final_index: int
    """The same as `index`."""
