"""Several models asked the same (240–259); these events belong to no stream."""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event, event


@event("CONSENSUS_START", 240, per_stream=False)
class ConsensusStart(Event):
    """The voters are about to be asked."""

    stream_count: int
    strategy: str
    """`unanimous`, `majority`, `weighted` or `best`."""
    conflict: str
    """What decides when the strategy finds no agreement: `vote`, `merge`, `best` or `fail`."""


@event("CONSENSUS_STREAM_START", 241, per_stream=False)
class ConsensusStreamStart(Event):
    """One voter is asked."""

    index: int
    """Position in the list of voters, from 0."""
    model: str
    """The voter's own model; a fallback may answer for it."""
    weight: float


@event("CONSENSUS_STREAM_END", 242, per_stream=False)
class ConsensusStreamEnd(Event):
    """One voter is done."""

    index: int
    success: bool
    """Whether there is an answer, and it fits the response format."""
    duration_ms: float
    error: dict[str, Any] | None = None
    """Why there is none: `code`, `message`, `category`, `retryable` and, where it helps, `detail`."""


@event("CONSENSUS_OUTPUT_COLLECTED", 243, per_stream=False)
class ConsensusOutputCollected(Event):
    """One voter's output counts."""

    index: int
    content_length: int
    """Of the answer's text, in code points."""


@event("CONSENSUS_ANALYSIS", 244, per_stream=False)
class ConsensusAnalysis(Event):
    """The outputs are compared."""

    strategy: str
    outputs: int
    """How many there are."""
    agreement_ratio: float
    """Weight of the heaviest group of like outputs as a part of all voters' weight, failed ones included."""
    groups: list[list[int]]
    """Voters with like outputs, the heaviest group first."""
    average_similarity: float
    """Over all pairs of outputs; 1 for a single one."""
    severity: str | None = None
    """How grave the disagreement is: minor, moderate, major or critical; absent when there is none."""
    fields: dict[str, float] | None = None
    """For objects: by property, the weight behind its commonest value as a part of all voters' weight."""


@event("CONSENSUS_RESOLUTION", 245, per_stream=False)
class ConsensusResolution(Event):
    """The result is chosen."""

    result: Any
    confidence: float
    """From 0 to 1."""
    method: str
    """The strategy, or the way in which the conflict was resolved: `vote`, `merge` or `best`."""
    index: int | None = None
    """The voter whose output the result is; absent when it is made of several."""


@event("CONSENSUS_END", 246, per_stream=False)
class ConsensusEnd(Event):
    """The consensus is over."""

    success: bool
    duration_ms: float
    status: str
    """`agreed` by the strategy, `partial` when a conflict was resolved, `failed` without a result."""
    confidence: float
    """Of the result; 0 without one."""
