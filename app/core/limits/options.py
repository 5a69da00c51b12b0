"""The limits of one model, as an operator or a client says them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_WAIT_MS = 600_000
"""Longest that an attempt may wait for its turn."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class BreakerLimits(_Body):
    """When a model that fails is left alone for a while."""

    failures: Annotated[int, Field(ge=1, le=10_000)] = Field(
        5, description="So many failures of the model in a row open the circuit."
    )
    cooldown_ms: Annotated[int, Field(ge=1, le=3_600_000)] = Field(
        30_000, description="How long it stays open; then one attempt shows whether the model is back."
    )


class ModelLimits(_Body):
    """What one process of the service may ask of a model; null is no limit."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"concurrency": 8, "requests_per_minute": 300, "breaker": {"failures": 5}}]
        }
    )

    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Attempts that may be under way at once."
    )
    requests_per_minute: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None, description="Attempts per minute; up to a minute's worth of them at once."
    )
    tokens_per_minute: Annotated[int, Field(ge=1, le=1_000_000_000_000)] | None = Field(
        None,
        description="Input and output tokens per minute. An attempt begins when any are left; what it used "
        "is counted when it has ended.",
    )
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = Field(
        30_000,
        description="How long an attempt waits for its turn, in order of arrival, before the run falls back "
        "or fails; 0 does not wait. The limits on the model's answer do not run meanwhile.",
    )
    breaker: BreakerLimits | None = Field(
        None, description="A circuit breaker; while it is open, runs fall back, or fail, at once."
    )
