"""What attempts used and cost as clients see it; the functions below make it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from app.api.replies import instant
from app.api.schemas.common import PageView, View
from app.core.usage.prices import CURRENCY, text_of
from app.ports.attempts import NewAttempt
from app.ports.usage import UsageSum

COUNTS: dict[str, Any] = {
    "input_tokens": 25,
    "output_tokens": 7,
    "reported": True,
    "estimated": False,
    "cached_input_tokens": 16,
    "cache_write_tokens": 0,
    "reasoning_tokens": 4,
}
"""An example."""
COST: dict[str, Any] = {"amount": "0.00000675", "currency": "USD", "unpriced_attempts": 0}
_RUN = "019a0000-0000-7000-8000-000000000003"
_NOW = "2026-11-30T12:00:00.000Z"


class UsageView(View):
    """Token counts of all attempts together, those that failed or were cut off included."""

    model_config = ConfigDict(json_schema_extra={"examples": [COUNTS]})

    input_tokens: int = Field(description="All that was read.")
    output_tokens: int = Field(description="All that was made, reasoning included.")
    reported: bool = Field(description="Whether any model server told its counts.")
    estimated: bool = Field(description="Whether some of it is an estimate, for want of a report.")
    cached_input_tokens: int = Field(description="Of the input, as far as servers say: from their caches.")
    cache_write_tokens: int = Field(description="Of the input, as far as servers say: to their caches.")
    reasoning_tokens: int = Field(description="Of the output, as far as servers say.")


class CostView(View):
    """What attempts cost, at the prices of their time."""

    model_config = ConfigDict(json_schema_extra={"examples": [COST]})

    amount: str = Field(description="Exact decimal text; of the attempts whose price was known.")
    currency: Literal["USD"]
    unpriced_attempts: int = Field(description="Attempts whose price was not known, and which it leaves out.")


class AttemptUsageView(View):
    """Token counts of one attempt; null where the model server does not tell a part."""

    model_config = ConfigDict(json_schema_extra={"examples": [COUNTS]})

    input_tokens: int
    output_tokens: int
    reported: bool
    estimated: bool
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None


class AttemptView(View):
    """One attempt at a model that has ended."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "object": "attempt",
                    "run_id": _RUN,
                    "stream": 0,
                    "purpose": "main",
                    "attempt": 1,
                    "fallback_index": 0,
                    "model": "small",
                    "provider": "openai",
                    "wire_model": "gpt-4o-mini",
                    "outcome": "completed",
                    "code": None,
                    "usage": COUNTS,
                    "cost": "0.00000675",
                    "currency": "USD",
                    "started_at": _NOW,
                    "ended_at": _NOW,
                }
            ]
        }
    )

    object: Literal["attempt"]
    run_id: UUID
    stream: int = Field(description="Place of its stream in the run, from 0.")
    purpose: Literal["main", "repair", "voter"] = Field(description="What its stream is for.")
    attempt: int = Field(description="From 1, on each model anew.")
    fallback_index: int = Field(description="0 for the primary model.")
    model: str | None = Field(description="The registered name; null where it is not known any more.")
    provider: str | None
    wire_model: str | None = Field(description="Its name on the wire.")
    outcome: Literal["completed", "failed", "aborted", "lost"] = Field(
        description="`aborted`: the run ended for it; `lost`: its process did, or failed by a bug."
    )
    code: str | None = Field(description="Of the fault that ended it.")
    usage: AttemptUsageView
    cost: str | None = Field(description="Exact decimal text; null where no price was known.")
    currency: Literal["USD"]
    started_at: datetime
    ended_at: datetime


class AttemptList(View):
    """All attempts of a run, in the order in which they ended."""

    data: list[AttemptView]
    has_more: Literal[False]
    next: None


class UsageSumView(View):
    """What one group of attempts used and cost."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "object": "usage",
                    "group_by": "day",
                    "key": "2026-11-30",
                    "runs": 1,
                    "attempts": 1,
                    "estimated_attempts": 0,
                    "usage": COUNTS,
                    "cost": COST,
                }
            ]
        }
    )

    object: Literal["usage"]
    group_by: Literal["project", "day", "model", "branch", "run"]
    key: str | None = Field(
        description="The day in UTC, the model's name, the branch's or the run's id. Null for the whole "
        "project, for models that are not known any more, and for runs without a branch."
    )
    runs: int
    attempts: int
    estimated_attempts: int = Field(description="Those with an estimate among their counts.")
    usage: UsageView
    cost: CostView | None = Field(description="Null where no price was known.")


class UsagePage(PageView[UsageSumView]):
    """One page of sums."""


def attempt_body(run_id: UUID, attempt: NewAttempt) -> dict[str, Any]:
    """An `AttemptView`."""
    usage = attempt.usage
    return {
        "object": "attempt",
        "run_id": str(run_id),
        "stream": attempt.stream,
        "purpose": attempt.purpose,
        "attempt": attempt.attempt,
        "fallback_index": attempt.fallback_index,
        "model": attempt.model,
        "provider": attempt.provider,
        "wire_model": attempt.wire_model,
        "outcome": attempt.outcome,
        "code": attempt.code,
        "usage": {name: getattr(usage, name) for name in AttemptUsageView.model_fields},
        "cost": None if attempt.cost is None else text_of(attempt.cost),
        "currency": CURRENCY,
        "started_at": instant(attempt.started_at),
        "ended_at": instant(attempt.ended_at),
    }


def sum_body(group_by: str, found: UsageSum) -> dict[str, Any]:
    """A `UsageSumView`."""
    return {
        "object": "usage",
        "group_by": group_by,
        "key": found.key or None,
        "runs": found.runs,
        "attempts": found.totals.attempts,
        "estimated_attempts": found.estimated_attempts,
        "usage": found.totals.counts(),
        "cost": found.totals.cost(),
    }
