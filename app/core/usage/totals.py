"""The sum over attempts, as a run shows it and as it is kept with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from app.core.usage.counts import Usage
from app.core.usage.prices import CURRENCY, EXACT, text_of


@dataclass(slots=True)
class Totals:
    """Token counts and cost of attempts."""

    attempts: int = 0
    """How many were added."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    reported: bool = False
    """Whether any server told anything."""
    estimated: bool = False
    """Whether some of it is an estimate."""
    amount: Decimal | None = None
    """US dollars of the attempts whose price was known; None where none was."""
    unpriced: int = 0
    """Attempts whose price was not known."""

    def add(self, usage: Usage, cost: Decimal | None) -> None:
        """Count one attempt; `cost` is None where the price is not known."""
        self.attempts += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_input_tokens += usage.cached_input_tokens or 0
        self.cache_write_tokens += usage.cache_write_tokens or 0
        self.reasoning_tokens += usage.reasoning_tokens or 0
        self.reported |= usage.reported
        self.estimated |= usage.estimated
        if cost is None:
            self.unpriced += 1
        else:
            self.amount = cost if self.amount is None else EXACT.add(self.amount, cost)

    def counts(self) -> dict[str, Any] | None:
        """The token counts as clients see them; None where nothing was added."""
        if not self.attempts:
            return None
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "reported": self.reported,
            "estimated": self.estimated,
            "cached_input_tokens": self.cached_input_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }

    def cost(self) -> dict[str, Any] | None:
        """The cost as clients see it; None where no price was known."""
        if self.amount is None:
            return None
        return {"amount": text_of(self.amount), "currency": CURRENCY, "unpriced_attempts": self.unpriced}

    def kept(self) -> dict[str, Any] | None:
        """All of it, as it is stored with the run; None where nothing was added."""
        counts = self.counts()
        if counts is None:
            return None
        return {**counts, "attempts": self.attempts, "cost": self.cost(), "unpriced": self.unpriced}

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> Totals:
        """What `kept` gave; an older one knows of two counts only."""
        if kept is None:
            return cls()
        cost = kept.get("cost")
        return cls(
            attempts=kept.get("attempts", 1),
            input_tokens=kept["input_tokens"],
            output_tokens=kept["output_tokens"],
            cached_input_tokens=kept.get("cached_input_tokens", 0),
            cache_write_tokens=kept.get("cache_write_tokens", 0),
            reasoning_tokens=kept.get("reasoning_tokens", 0),
            reported=kept["reported"],
            estimated=kept.get("estimated", False),
            amount=None if cost is None else Decimal(cost["amount"]),
            unpriced=kept.get("unpriced", 0),
        )
