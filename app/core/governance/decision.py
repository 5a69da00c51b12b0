"""What gates and permissions say to one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["allow", "deny", "escalate"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a call may run."""

    effect: Effect
    by: str = ""
    rule: int | None = None
    reason: str | None = None
