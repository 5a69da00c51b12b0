"""Which wire format answers (20–39)."""

from __future__ import annotations

from app.core.events.base import Event, event


@event("ADAPTER_WRAP_START", 20)
class AdapterWrapStart(Event):
    """The answer's wire format is about to be settled."""

    stream_type: str
    """What kind of object is read: always `async_iterator`."""
    adapter_id: str | None = None
    """Known beforehand, since the model names its provider."""


@event("ADAPTER_DETECTED", 21)
class AdapterDetected(Event):
    """The wire format is settled."""

    adapter_id: str


@event("ADAPTER_WRAP_END", 22)
class AdapterWrapEnd(Event):
    """The answer can be read."""

    adapter_id: str
