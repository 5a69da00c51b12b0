"""The limits of keys and projects as clients see them; they are set as `QuotaLimits` says."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from app.api.schemas.common import View
from app.core.limits.quota import LimitName, Standing
from app.core.limits.refusal import plain
from app.ports.quotas import Used

_REQUESTS: dict[str, Any] = {"quota": 600, "used": 40, "left": 560, "resets_in_s": 12}
_COST: dict[str, Any] = {"quota": "12.5", "used": "0.0040254", "left": "12.4959746", "resets_in_s": 41_000}
_RUNS: dict[str, Any] = {"quota": 8, "used": 2, "left": 6, "resets_in_s": None}


class LimitView(View):
    """One limit that is set, and how far it is used; money is decimal text, in US dollars."""

    model_config = ConfigDict(json_schema_extra={"examples": [_REQUESTS, _COST, _RUNS]})

    quota: int | str
    used: int | str = Field(description="Of requests those too that processes have set aside for themselves.")
    left: int | str = Field(description="Never less than 0.")
    resets_in_s: int | None = Field(
        description="Seconds until the minute, or the day of UTC, ends; null for runs."
    )


class LimitsView(View):
    """The limits of a key or a project; null where nothing is limited."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "object": "limits",
                    "project_id": "019a0000-0000-7000-8000-000000000004",
                    "key_id": "019a0000-0000-7000-8000-000000000005",
                    "requests_per_minute": _REQUESTS,
                    "concurrent_runs": _RUNS,
                    "tokens_per_day": None,
                    "cost_per_day": _COST,
                }
            ]
        }
    )

    object: Literal["limits"]
    project_id: UUID
    key_id: UUID | None = Field(description="Null for the limits of the project itself.")
    requests_per_minute: LimitView | None
    concurrent_runs: LimitView | None
    tokens_per_day: LimitView | None
    cost_per_day: LimitView | None


class LimitsList(View):
    """The limits of the key that asks, if it has one, and of its project."""

    data: list[LimitsView]
    has_more: Literal[False]
    next: None


def limits_view(used: Used) -> dict[str, Any]:
    """Limits as `LimitsView` says."""
    set_ones = {standing.limit: _limit_view(standing) for standing in used.standings}
    return {
        "object": "limits",
        "project_id": used.project_id,
        "key_id": used.key_id,
        **{name.value: set_ones.get(name) for name in LimitName},
    }


def _limit_view(standing: Standing) -> dict[str, Any]:
    return {
        "quota": plain(standing.quota),
        "used": plain(standing.used),
        "left": plain(standing.left),
        "resets_in_s": None if standing.resets_s is None else max(ceil(standing.resets_s), 0),
    }
