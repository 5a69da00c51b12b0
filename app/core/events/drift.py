"""Whether the answer strays from its course (200–219)."""

from __future__ import annotations

from app.core.events.base import Event, event


@event("DRIFT_CHECK_RESULT", 200)
class DriftCheckResult(Event):
    """The detectors looked at the answer."""

    detected: bool
    score: float
    """The highest confidence, 0 when nothing was found."""
    metrics: dict[str, float]
    """Confidence by kind of drift, only of what was found."""
    threshold: float
    """From which score on it counts as drift."""


@event("DRIFT_CHECK_SKIPPED", 201)
class DriftCheckSkipped(Event):
    """A check was due and could not judge; with `events: "full"` only."""

    reason: str
    """`too_little_text` or `detector_failed`."""
