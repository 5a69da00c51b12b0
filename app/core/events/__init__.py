"""The facts a run can leave in its log, one file per family; importing this package declares them all.

The number of a type is stored with every event, so it is never reused. Each family has a range of twenty,
its first number at the head of its file.
"""

from app.core.events import (
    abort,
    adapter,
    approval,
    consensus,
    continuation,
    drift,
    fallback,
    guardrail,
    network,
    retry,
    run,
    session,
    structured,
    timeout,
    tool,
)
from app.core.events.base import Callback, Event, TextRef, by_code, event_types

__all__ = [
    "Callback",
    "Event",
    "TextRef",
    "abort",
    "adapter",
    "approval",
    "by_code",
    "consensus",
    "continuation",
    "drift",
    "event_types",
    "fallback",
    "guardrail",
    "network",
    "retry",
    "run",
    "session",
    "structured",
    "timeout",
    "tool",
]
