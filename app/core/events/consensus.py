"""Several models asked the same (240–259); these events belong to no stream."""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event, event


@event("CONSENSUS_START", 240)
class ConsensusStart(Event):
    """The voters are about to be asked."""

    stream_count: int
    strategy: str
    """`unanimous`, `majority`, `weighted` or `best`."""


@event("CONSENSUS_STREAM_START", 241)
class ConsensusStreamStart(Event):
    """One voter is asked."""

    index: int
    """Position in the list of voters, from 0."""


@event("CONSENSUS_STREAM_END", 242)
class ConsensusStreamEnd(Event):
    """One voter is done."""

    index: int
    success: bool
    duration_ms: float
    error: dict[str, Any] | None = None


@event("CONSENSUS_OUTPUT_COLLECTED", 243)
class ConsensusOutputCollected(Event):
    """One voter's output counts."""

    index: int
    content_length: int
    """In code points."""


@event("CONSENSUS_ANALYSIS", 244)
class ConsensusAnalysis(Event):
    """The outputs are compared."""

    strategy: str
    outputs: int
    """How many there are."""
    agreement_ratio: float
    """Weight of the largest group of like outputs, as a part of all."""
    groups: list[list[int]]
    """Voters with like outputs, the heaviest group first."""
    average_similarity: float
    severity: str | None = None
    """How grave the disagreement is: minor, moderate, major or critical."""


@event("CONSENSUS_RESOLUTION", 245)
class ConsensusResolution(Event):
    """The result is chosen."""

    result: Any
    confidence: float
    """From 0 to 1."""
    method: str
    """The strategy, or the way in which the conflict was resolved: `vote`, `merge` or `best`."""


@event("CONSENSUS_END", 246)
class ConsensusEnd(Event):
    """The consensus is over."""

    success: bool
    duration_ms: float
    status: str
    """`agreed`, `partial` or `failed`."""
    confidence: float
