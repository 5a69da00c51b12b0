"""The facts a run can leave in its log, one file per family; importing this package declares them all.

The number of a type is stored with every event, so it is never reused. Each family has a range of twenty,
its first number at the head of its file.
"""

from app.core.events import abort, adapter, fallback, network, retry, run, session, structured, timeout, tool
from app.core.events.base import Callback, Event, by_code, event_types

__all__ = [
    "Callback",
    "Event",
    "abort",
    "adapter",
    "by_code",
    "event_types",
    "fallback",
    "network",
    "retry",
    "run",
    "session",
    "structured",
    "timeout",
    "tool",
]
