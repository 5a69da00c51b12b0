"""What a stream can ask for. Events are effects too: they ask to be recorded, callbacks included."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from app.core.chunks import UsageReport
from app.core.events.base import Event
from app.core.lifecycle.inputs import Answer
from app.core.opaque import PausedTurn


@dataclass(slots=True)
class Position:
    """The events after this one belong to this attempt."""

    attempt: int
    """1-based; starts again at 1 on a fallback."""
    fallback_index: int
    """Position in the list of models; 0 is the primary."""


@dataclass(slots=True)
class Open:
    """Open the model stream that the machine's position names."""

    fallback_index: int
    attempt: int
    opening: int
    """Which opening of the session this is, over all models, 1-based."""
    continue_from: str = ""
    """Text that the answer should go on from; empty to start afresh."""
    paused: PausedTurn | None = None
    """What is given back to a provider that interrupted itself, for it to go on."""


@dataclass(slots=True)
class Close:
    """Close the open model stream now; whatever still arrives is not wanted."""


AttemptOutcome = Literal["completed", "failed", "aborted", "paused"]
"""`paused`: its provider interrupted the answer, and the same attempt goes on with another model call."""


@dataclass(slots=True)
class AttemptEnded:
    """The model call that was opened last is over, and its attempt with it, unless that was paused.

    Once for each `Open`, before anything follows from it. It tells of this call alone: what an attempt used
    is the sum of its calls.
    """

    outcome: AttemptOutcome
    code: str | None
    """Of the fault that ended it; None when it completed."""
    report: UsageReport | None
    """The last one that its server made."""
    whole: bool
    """Whether that report was made when all that the call gives was there."""
    heard: int
    """Code points of all that it said, reasoning and tool calls included; 0 where `report` says it all."""
    refused: bool = False
    """Whether it failed before its answer began, by the server's word or for want of a connection."""


@dataclass(slots=True)
class Ask:
    """Have something decided outside the core; the next input is its `Answer`, an `Abort`, or a `Tick`."""

    kind: str
    """`should_retry`, `calculate_delay` or `guardrail`."""
    question: dict[str, Any]


@dataclass(slots=True)
class StreamError:
    """How a stream failed, in the words of the API."""

    code: str
    message: str
    category: str
    """network, transient, model, content, fatal, provider or internal."""
    retryable: bool = False
    """Whether asking again later may help."""
    detail: dict[str, Any] = field(default_factory=dict)
    """Status, the provider's own type and code, what else helps a diagnosis."""

    def wire(self) -> dict[str, Any]:
        """The form in which runs and callbacks carry it."""
        out: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "category": self.category,
            "retryable": self.retryable,
        }
        if self.detail:
            out["detail"] = self.detail
        return out

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> StreamError:
        """What `wire` gave."""
        return cls(
            told["code"], told["message"], told["category"], told["retryable"], dict(told.get("detail", {}))
        )


@dataclass(slots=True)
class Finish:
    """The session is over; the last effect, once. What came out is read from the machine."""

    error: StreamError | None
    """None when it completed."""
    aborted: bool = False
    """True when it ended by an abort (not by the deadline)."""


Effect = Event | Position | Open | Close | AttemptEnded | Ask | Finish

T = TypeVar("T")
Steps = Generator[Effect, Answer, T]
"""What a handler is: effects in order; an `Ask` is sent its answer, anything else nothing."""
