"""The lifecycle options of a request, a branch, a model, a project and the settings, merged into one set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.core.json_text import NotJson, canonical
from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.options import REASONS, LifecycleOptions, RetryOptions, TimeoutOptions

MAX_CONTEXT = 4 * 1024
"""Bytes of JSON that a caller's context may have."""

Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]
Delay = Annotated[int, Field(ge=0, le=3_600_000)]
Count = Annotated[int, Field(ge=0, le=1_000)]
Interval = Annotated[int, Field(ge=1, le=100_000)]

Reason = Literal[
    "network_error",
    "timeout",
    "rate_limit",
    "server_error",
    "incomplete",
    "zero_output",
    "guardrail_violation",
    "drift",
]
StrategyName = Literal["exponential", "linear", "fixed", "full-jitter", "fixed-jitter", "decorrelated"]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TimeoutBody(_Body):
    """Time limits of a model stream; null switches one off."""

    initial_token_ms: Milliseconds | None = Field(
        5_000, description="Until the first text, reasoning or tool-call fragment."
    )
    inter_token_ms: Milliseconds | None = Field(10_000, description="Between two signs of life after that.")
    total_ms: Milliseconds | None = Field(None, description="The run's deadline.")


class RetryBody(_Body):
    """How often and when the same model is asked again."""

    attempts: Count = Field(3, description="Retries after faults of the answer itself.")
    max_retries: Count = Field(6, description="All retries of one model, those included.")
    base_delay_ms: Delay = 1_000
    max_delay_ms: Delay = 10_000
    strategy: StrategyName = "fixed-jitter"
    retry_on: list[Reason] | None = Field(
        None, description="For which reasons; null is all eight, an empty list none."
    )
    should_retry: str | None = Field(None, description="Not offered by this version.")
    calculate_delay: str | None = Field(None, description="Not offered by this version.")


class CheckIntervals(_Body):
    """Every how many tokens what is looked at."""

    guardrails: Interval = 15
    drift: Interval = 25
    checkpoint: Interval = 20


class LifecycleBody(_Body):
    """Lifecycle options of one level: absent inherits from the next one, null switches off."""

    timeout: TimeoutBody | None = None
    retry: RetryBody | None = None
    fallbacks: Annotated[list[str], Field(max_length=16)] | None = Field(
        None, description="Models to turn to, in order, when one has failed for good."
    )
    guardrails: str | list[Any] | None = Field(None, description='Only "none" is offered by this version.')
    drift: bool | dict[str, Any] | None = Field(None, description="Only false is offered by this version.")
    detect_zero_tokens: bool | None = Field(None, description="Whether an answer without content is a fault.")
    continue_from_last_good_token: bool | dict[str, Any] | None = Field(
        None, description="Only false is offered by this version."
    )
    check_intervals: CheckIntervals | None = None
    context: dict[str, Any] | None = Field(
        None, description="Copied into every event; at most 4 KiB.", examples=[{"request_id": "abc"}]
    )
    events: Literal["standard", "full"] = Field(
        "standard", description="`full` adds the events that repeat without news."
    )
    max_model_calls: Annotated[int, Field(ge=1, le=1_000)] = Field(
        20, description="Openings of model streams that the whole run may make."
    )

    @field_validator("context")
    @classmethod
    def _small(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            size = 0 if value is None else len(canonical(value))
        except NotJson as error:
            raise ValueError(error.message) from None
        if size > MAX_CONTEXT:
            raise ValueError(f"the context has {size} bytes of JSON, at most {MAX_CONTEXT} are taken")
        return value

    def level(self) -> dict[str, Any]:
        """What this level says, and only that: the form to be stored and merged."""
        return self.model_dump(exclude_unset=True)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """What governs the streams of one run."""

    options: LifecycleOptions
    fallbacks: tuple[str, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict)


_OFF: Final[Mapping[str, Mapping[str, Any]]] = {
    "timeout": {"initial_token_ms": None, "inter_token_ms": None, "total_ms": None},
    "retry": {"attempts": 0, "max_retries": 0},
    "check_intervals": {},
}
"""What null means for a section that is an object."""


def merge_lifecycle(*levels: Mapping[str, Any] | None) -> Lifecycle:
    """Merge levels, the one that counts most first: request, branch, model, project, settings.

    A level is what `LifecycleBody.level()` gives; None says nothing. Objects merge field by field, lists and
    plain values replace, null switches off.
    """
    merged: dict[str, Any] = {}
    for level in reversed(levels):
        for name, value in (level or {}).items():
            if name in _OFF:
                merged[name] = _OFF[name] if value is None else {**merged.get(name, {}), **value}
            else:
                merged[name] = value
    return Lifecycle(
        options=_options(merged),
        fallbacks=tuple(merged.get("fallbacks") or ()),
        context=merged.get("context") or {},
    )


def _options(merged: Mapping[str, Any]) -> LifecycleOptions:
    chosen = {name: merged[name] for name in ("events", "max_model_calls") if name in merged}
    return LifecycleOptions(
        timeout=_timeout(merged.get("timeout", {})),
        retry=_retry(merged.get("retry", {})),
        detect_zero_tokens=bool(merged.get("detect_zero_tokens", True)),
        **chosen,
    )


def _timeout(section: Mapping[str, Any]) -> TimeoutOptions:
    names = {"initial_token_ms": "initial_ms", "inter_token_ms": "inter_ms", "total_ms": "total_ms"}
    return TimeoutOptions(**{ours: section[name] for name, ours in names.items() if name in section})


def _retry(section: Mapping[str, Any]) -> RetryOptions:
    plain = ("attempts", "max_retries", "base_delay_ms", "max_delay_ms")
    chosen: dict[str, Any] = {name: section[name] for name in plain if name in section}
    if "strategy" in section:
        chosen["strategy"] = Strategy(section["strategy"])
    reasons = section.get("retry_on")
    return RetryOptions(retry_on=REASONS if reasons is None else frozenset(reasons), **chosen)
