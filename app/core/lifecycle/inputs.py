"""What can happen to a stream. Chunks (`core/chunks.py`) are inputs too, fed as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.core.chunks import Chunk
from app.core.faults import Fault

if TYPE_CHECKING:
    from app.core.lifecycle.replay import Replay


@dataclass(slots=True)
class Begin:
    """Start the session; the first input, once."""


@dataclass(slots=True)
class TakeOver:
    """Go on with a session whose process was lost; the first input, in the place of `Begin`."""

    past: Replay
    """What its log tells."""
    number: int
    """Which recovery of the run it is, from 1."""
    stop: str | None = None
    """Who wants the run to end; None when it is to go on."""


@dataclass(slots=True)
class Opened:
    """The model server accepted the request and its answer begins."""

    adapter_id: str
    """Which wire format answers, for example `openai`."""


@dataclass(slots=True)
class Closed:
    """The answer ended without a fault; whether it was complete is the machine's to judge."""


@dataclass(slots=True)
class Failed:
    """The attempt failed, at its opening or later."""

    fault: Fault


@dataclass(slots=True)
class Tick:
    """Time has passed; fed when `now` has reached the machine's `deadline_ms`."""


@dataclass(slots=True)
class Held:
    """We stopped reading for a while, since the log was behind; the token limits do not count that time."""

    ms: float
    """How long, up to now."""


@dataclass(slots=True)
class Abort:
    """Somebody wants the stream to end."""

    source: str
    """Who: `user` for a cancelled run, `shutdown` for a stopping process."""


@dataclass(slots=True)
class Answer:
    """The reply to an `Ask`: a value, or the error that asking ended with."""

    value: Any = None
    error: str | None = None
    duration_ms: float = 0.0


Input = Begin | TakeOver | Opened | Closed | Failed | Tick | Held | Abort | Answer | Chunk
