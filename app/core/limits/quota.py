"""The limits of a key or a project, and how far one of them is used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from enum import StrEnum
from math import ceil
from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.core.money import as_written

MINUTE_S: Final = 60
DAY_S: Final = 86_400
MICRO: Final = 1_000_000
"""Amounts of money are told in millionths where only whole numbers can be."""


class Owner(StrEnum):
    """Whose limits they are; those of the project hold for all of its keys together."""

    KEY = "key"
    PROJECT = "project"


class LimitName(StrEnum):
    """What is limited."""

    REQUESTS = "requests_per_minute"
    RUNS = "concurrent_runs"
    TOKENS = "tokens_per_day"
    COST = "cost_per_day"


class _Words(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Dollars = Annotated[
    Decimal,
    BeforeValidator(as_written),
    Field(ge=0, le=1_000_000, max_digits=13, decimal_places=6, strict=False),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^[0-9]{1,7}(\.[0-9]{1,6})?$"},
                {"type": "number", "minimum": 0, "maximum": 1_000_000},
            ]
        }
    ),
]
"""US dollars, as text or as a number."""


class QuotaLimits(_Words):
    """What a key or a project may use; what is null or left out does not limit."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "requests_per_minute": 600,
                    "concurrent_runs": 8,
                    "tokens_per_day": 2_000_000,
                    "cost_per_day": "12.50",
                }
            ]
        }
    )

    requests_per_minute: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None, description="Requests of any kind, in each minute of the clock."
    )
    concurrent_runs: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        None, description="Runs that were accepted and have not ended: queued, running or waiting."
    )
    tokens_per_day: Annotated[int, Field(ge=0, le=1_000_000_000_000)] | None = Field(
        None,
        description="Input and output tokens in a day of UTC. No run is accepted once so many were used; "
        "those that were accepted before go on.",
    )
    cost_per_day: Dollars | None = Field(
        None, description="US dollars in a day of UTC, counted as tokens are; models without a price cost 0."
    )

    @property
    def limits_runs(self) -> bool:
        """Whether any of them is looked at when a run is accepted."""
        return self.concurrent_runs is not None or self.counts_usage

    @property
    def counts_usage(self) -> bool:
        """Whether what attempts at models use is counted."""
        return self.tokens_per_day is not None or self.cost_per_day is not None

    @property
    def limits_anything(self) -> bool:
        """Whether there is a limit at all."""
        return self.requests_per_minute is not None or self.limits_runs


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one key, or of one project."""

    id: UUID
    """The key's or the project's."""
    owner: Owner
    limits: QuotaLimits


def run_quotas(quotas: Iterable[Quota]) -> tuple[UUID, ...]:
    """The ids of those that limit runs."""
    return tuple(quota.id for quota in quotas if quota.limits.limits_runs)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one limit is used."""

    owner: Owner
    limit: LimitName
    quota: int | Decimal
    used: int | Decimal
    resets_s: float | None
    """Seconds until nothing of it is used; None where that is when runs end."""

    @property
    def left(self) -> int | Decimal:
        """What may still be used; never less than 0."""
        return max(self.quota - self.used, type(self.quota)(0))

    @property
    def is_reached(self) -> bool:
        """Whether nothing is left."""
        return self.used >= self.quota


_SHORT: Final = {
    LimitName.REQUESTS: ("requests", f";w={MINUTE_S}"),
    LimitName.RUNS: ("runs", ';qu="concurrent-runs"'),
    LimitName.TOKENS: ("tokens", f';w={DAY_S};qu="tokens"'),
    LimitName.COST: ("cost", f';w={DAY_S};qu="micro-usd"'),
}


def policy_of(owner: Owner, limit: LimitName) -> str:
    """The name by which header fields tell of a limit: `key-requests` and its like."""
    return f"{owner}-{_SHORT[limit][0]}"


def rate_fields(standings: Iterable[Standing], age_s: float = 0) -> tuple[str, str]:
    """The values of the fields RateLimit-Policy and RateLimit: structured lists, an item for each limit.

    `age_s` is how long ago it was so.
    """
    policies: list[str] = []
    states: list[str] = []
    for each in standings:
        name = f'"{policy_of(each.owner, each.limit)}"'
        policies.append(f"{name};q={_whole(each.quota)}{_SHORT[each.limit][1]}")
        until = "" if each.resets_s is None else f";t={max(ceil(each.resets_s - age_s), 0)}"
        states.append(f"{name};r={_whole(each.left)}{until}")
    return ", ".join(policies), ", ".join(states)


def _whole(amount: int | Decimal) -> int:
    if isinstance(amount, int):
        return amount
    return int((amount * MICRO).to_integral_value(ROUND_FLOOR))
