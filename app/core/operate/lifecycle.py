"""The lifecycle options of a request, a branch, a model, a project and the settings, merged into one set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Protocol, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from app.core.drift.monitor import DriftOptions
from app.core.guardrails.base import Rule
from app.core.guardrails.presets import rules_of
from app.core.json_text import NotJson, canonical
from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.options import (
    REASONS,
    ContinuationOptions,
    LifecycleOptions,
    RetryOptions,
    TimeoutOptions,
)

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
DriftKind = Literal[
    "meta_commentary",
    "repetition",
    "format_collapse",
    "tone_shift",
    "markdown_collapse",
    "entropy_spike",
    "hedging",
]
MAX_EXPRESSION = 2_000
"""Characters of one of the caller's expressions."""
Expression = Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION)]


class Contradiction(ValueError):
    """Options that make sense on their own levels, and none together."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


class Outside(Protocol):
    """What only the running service knows of a lifecycle; the context in which a body is validated."""

    @property
    def rules(self) -> Mapping[str, Rule]:
        """Guardrails beside the built-in ones, by name."""

    def fault(self, name: Literal["should_retry", "calculate_delay"], expression: str) -> str | None:
        """What is wrong with one of the caller's expressions."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TimeoutBody(_Body):
    """Time limits of a model stream; null switches one off."""

    initial_token_ms: Milliseconds | None = Field(
        5_000,
        description="Until the first text, reasoning or tool-call fragment; pings put it off.",
    )
    inter_token_ms: Milliseconds | None = Field(
        10_000, description="Between two signs of life after that; pings are some."
    )
    alive_ms: Milliseconds = Field(
        30_000,
        description="How long pings alone put these limits off: at first, and whenever the answer has "
        "come forward.",
    )
    total_ms: Milliseconds | None = Field(
        None,
        description="The run's deadline: all its streams, repairs and tool calls. Waiting for a person does "
        "not count.",
    )


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
    should_retry: Expression | None = Field(
        None,
        description="CEL over error, category, attempt and state; a retry is made only where it gives true.",
        examples=["attempt < 2 && error.status != 503"],
    )
    calculate_delay: Expression | None = Field(
        None,
        description="CEL over the same and base_delay_ms, max_delay_ms, retry_after_ms: the pause in ms.",
        examples=["base_delay_ms * (attempt + 1)"],
    )

    @field_validator("should_retry", "calculate_delay")
    @classmethod
    def _sound(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.context is not None:
            name = cast(Literal["should_retry", "calculate_delay"], info.field_name)
            if fault := cast(Outside, info.context).fault(name, value):
                raise ValueError(fault)
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if {"attempts", "max_retries"} <= self.model_fields_set:
            _check(self.attempts <= self.max_retries, "attempts is more than max_retries")
        if {"base_delay_ms", "max_delay_ms"} <= self.model_fields_set:
            _check(self.base_delay_ms <= self.max_delay_ms, "base_delay_ms is more than max_delay_ms")
        return self


class GuardrailBody(_Body):
    """A rule, with what it is to look for and how grave that is."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict, description="GET /v1/guardrails tells each rule's.")
    severity: Literal["warning", "error", "fatal"] | None = Field(
        None, description="Of all that it finds; absent leaves it to the rule."
    )


class DriftBody(_Body):
    """When an answer counts as drifting."""

    threshold: float = Field(0.5, gt=0, le=1, description="From which confidence on.")
    types: list[DriftKind] | None = Field(None, min_length=1, description="Which kinds; null is all.")


class ContinuationBody(_Body):
    """How a retry or a fallback goes on from the text that the failed attempt left."""

    enabled: bool = True
    checkpoint_interval: Interval = Field(20, description="In tokens; beats `check_intervals.checkpoint`.")
    min_overlap: Annotated[int, Field(ge=1, le=10_000)] = Field(2, description="In code points.")
    max_overlap: Annotated[int, Field(ge=1, le=10_000)] = Field(500, description="In code points.")
    prompt: Annotated[str, Field(min_length=1, max_length=10_000)] | None = Field(
        None, description="What the model is told after its own unfinished answer; null is the default."
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if {"min_overlap", "max_overlap"} <= self.model_fields_set:
            _check(self.min_overlap <= self.max_overlap, "min_overlap is more than max_overlap")
        return self


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(f"contradictory: {otherwise}")


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
    guardrails: str | list[str | GuardrailBody] | None = Field(
        None,
        description="A preset or a list of rules; GET /v1/guardrails lists both.",
        examples=["recommended", ["json", {"name": "zero_output", "severity": "fatal"}]],
    )
    drift: bool | DriftBody | None = Field(None, description="Whether an answer that drifts is given up.")
    detect_zero_tokens: bool | None = Field(None, description="Whether an answer without content is a fault.")
    continue_from_last_good_token: bool | ContinuationBody | None = Field(
        None, description="Whether a retry or a fallback goes on from the text so far."
    )
    check_intervals: CheckIntervals | None = Field(None, description="Null is the defaults.")
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

    @field_validator("guardrails")
    @classmethod
    def _known(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.context is not None:
            rules_of(_guardrails(value), cast(Outside, info.context).rules)
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

_CAPS: Final = (("retry", "attempts", "max_retries"), ("retry", "base_delay_ms", "max_delay_ms"))
"""Options that another one of their section limits."""

_SWITCHES: Final = frozenset({"drift", "continue_from_last_good_token"})
"""Sections that may also be just on or off."""


def merge_lifecycle(*levels: Mapping[str, Any] | None, rules: Mapping[str, Rule] | None = None) -> Lifecycle:
    """Merge levels, the one that counts most first: request, branch, model, project, settings.

    A level is what `LifecycleBody.level()` gives; None says nothing. Objects merge field by field, lists and
    plain values replace, null switches off. `rules` are guardrails beside the built-in ones. Raises
    BadGuardrails for a rule that does not exist any more, and Contradiction.
    """
    _check_caps(levels)
    merged: dict[str, Any] = {}
    for level in reversed(levels):
        for name, value in (level or {}).items():
            if name in _OFF:
                merged[name] = _OFF[name] if value is None else {**merged.get(name, {}), **value}
            elif name in _SWITCHES:
                merged[name] = _switched(merged.get(name, {}), value)
            else:
                merged[name] = value
    return Lifecycle(
        options=_options(merged, rules or {}),
        fallbacks=tuple(merged.get("fallbacks") or ()),
        context=merged.get("context") or {},
    )


def _check_caps(levels: Sequence[Mapping[str, Any] | None]) -> None:
    """A level may cap what a lesser one asks for; what it asks for itself must be possible."""
    for section, name, cap in _CAPS:
        asked, capped = _said(levels, section, name), _said(levels, section, cap)
        if asked is None or capped is None:
            continue
        if asked.level <= capped.level and asked.value > capped.value:
            raise Contradiction((section, name), f"it is {asked.value}, and {cap} {capped.value}")


@dataclass(frozen=True, slots=True)
class _Said:
    """A value, and the place of its level: the less, the more it counts."""

    value: int
    level: int


def _said(levels: Sequence[Mapping[str, Any] | None], section: str, name: str) -> _Said | None:
    """What counts of an option; None where no level names it, or one switches its section off first."""
    for place, level in enumerate(levels):
        said = (level or {}).get(section, {})
        if said is None:
            return None
        if name in said:
            return _Said(said[name], place)
    return None


def _switched(inherited: Mapping[str, Any], value: bool | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return {**inherited, "enabled": True, **value}
    return {**inherited, "enabled": True} if value else {"enabled": False}


def _options(merged: Mapping[str, Any], rules: Mapping[str, Rule]) -> LifecycleOptions:
    chosen = {name: merged[name] for name in ("events", "max_model_calls") if name in merged}
    every = merged.get("check_intervals", {})
    return LifecycleOptions(
        timeout=_timeout(merged.get("timeout", {})),
        retry=_retry(merged.get("retry", {})),
        continuation=_continuation(merged.get("continue_from_last_good_token", {}), every),
        guardrails=rules_of(_guardrails(merged.get("guardrails") or "none"), rules),
        guardrails_every=every.get("guardrails", 15),
        drift=_drift(merged.get("drift", {})),
        drift_every=every.get("drift", 25),
        detect_zero_tokens=bool(merged.get("detect_zero_tokens", True)),
        **chosen,
    )


def _guardrails(value: Any) -> Any:
    """As `rules_of` takes them, whether they are still models or stored already."""
    if isinstance(value, str):
        return value
    return [
        entry.model_dump(exclude_unset=True) if isinstance(entry, GuardrailBody) else entry for entry in value
    ]


def _timeout(section: Mapping[str, Any]) -> TimeoutOptions:
    names = {"initial_token_ms": "initial_ms", "inter_token_ms": "inter_ms"}
    return TimeoutOptions(**{names.get(name, name): limit for name, limit in section.items()})


def _retry(section: Mapping[str, Any]) -> RetryOptions:
    plain = (
        *("attempts", "max_retries", "base_delay_ms", "max_delay_ms"),
        *("should_retry", "calculate_delay"),
    )
    chosen: dict[str, Any] = {name: section[name] for name in plain if name in section}
    if "strategy" in section:
        chosen["strategy"] = Strategy(section["strategy"])
    reasons = section.get("retry_on")
    return RetryOptions(retry_on=REASONS if reasons is None else frozenset(reasons), **chosen)


def _continuation(section: Mapping[str, Any], every: Mapping[str, Any]) -> ContinuationOptions | None:
    if not section.get("enabled"):
        return None
    chosen = {name: section[name] for name in ("min_overlap", "max_overlap", "prompt") if name in section}
    made = ContinuationOptions(section.get("checkpoint_interval", every.get("checkpoint", 20)), **chosen)
    if made.min_overlap > made.max_overlap:
        at = ("continue_from_last_good_token", "min_overlap")
        raise Contradiction(at, f"it is {made.min_overlap}, and max_overlap {made.max_overlap}")
    return made


def _drift(section: Mapping[str, Any]) -> DriftOptions | None:
    if not section.get("enabled"):
        return None
    kinds = section.get("types")
    return DriftOptions(section.get("threshold", 0.5), None if kinds is None else frozenset(kinds))
