"""Attempts at models that are over, as they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol
from uuid import UUID

from app.core.usage.counts import Usage

AttemptEnd = Literal["completed", "failed", "aborted", "lost"]
"""How an attempt ended; `lost` where nobody saw its end."""


@dataclass(slots=True)
class NewAttempt:
    """An attempt at a model that has ended: what it used, and what that cost at the price of the time."""

    stream: int
    fallback_index: int
    attempt: int
    purpose: str
    """What its stream is for: `main`, `repair` or `voter`."""
    model: str | None
    """The name under which it is registered; None, and so the next two, where that is not known any more."""
    provider: str | None
    wire_model: str | None
    outcome: AttemptEnd
    code: str | None
    """Of the fault that ended it."""
    usage: Usage
    cost: Decimal | None
    """US dollars; None where no price was known."""
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt of which the log tells the beginning, and nothing the end.

    What its earlier calls were reported to have used, where it was paused, is lost with it.
    """

    stream: int
    fallback_index: int
    attempt: int
    purpose: str
    calls: int
    """How often the model was called: once, and once more after each pause."""
    length: int
    """Code points of the text that it left in the log."""
    started_at: datetime


class AttemptLog(Protocol):
    """The attempts of one run, for who is about to end it."""

    async def attempts_of(self, run_id: UUID) -> tuple[Sequence[NewAttempt], Sequence[LostAttempt]]:
        """Those that have ended, and those of which no end is known."""
