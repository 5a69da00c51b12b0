"""Going on from the text that a failed attempt had written (120–139)."""

from __future__ import annotations

from app.core.events.base import Event, TextRef, event


@event("CONTINUATION_START", 120, refers=True)
class ContinuationStart(Event):
    """The next answer is asked to go on from a checkpoint."""

    checkpoint_length: int
    """In code points."""
    checkpoint: TextRef
    token_count: int
    """TOKEN events that make up the checkpoint."""


@event("CHECKPOINT_SAVED", 121, refers=True)
class CheckpointSaved(Event):
    """A later attempt may go on from here."""

    checkpoint: TextRef
    token_count: int
    """TOKEN events that make up the checkpoint."""


@event("RESUME_START", 122, refers=True)
class ResumeStart(Event):
    """The attempt resumes from a checkpoint; the one taken at a failure is announced by this alone."""

    checkpoint: TextRef
    token_count: int
    """TOKEN events that make up the checkpoint."""
