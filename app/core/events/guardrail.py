"""Rules that judge the answer (180–199)."""

from __future__ import annotations

from typing import Any

from app.core.events.base import Event, event


@event("GUARDRAIL_PHASE_START", 180)
class GuardrailPhaseStart(Event):
    """The rules are about to judge a text."""

    phase: str
    """`pre` for a checkpoint, `post` for output."""
    rule_count: int
    final: bool
    """Whether the answer has ended."""


@event("GUARDRAIL_RULE_START", 181)
class GuardrailRuleStart(Event):
    """One rule begins."""

    index: int
    """Position among the rules of the phase, from 0."""
    rule_id: str
    callback_id: str
    """The same in all events of this rule in this phase."""


@event("GUARDRAIL_RULE_RESULT", 182)
class GuardrailRuleResult(Event):
    """What the rule found; what was told before is not told again."""

    index: int
    rule_id: str
    passed: bool
    violation: dict[str, Any] | None = None
    """The first finding; the phase's end has all of them."""


@event("GUARDRAIL_RULE_END", 183)
class GuardrailRuleEnd(Event):
    """One rule is done."""

    index: int
    rule_id: str
    passed: bool
    callback_id: str
    duration_ms: float


@event("GUARDRAIL_PHASE_END", 184)
class GuardrailPhaseEnd(Event):
    """All rules are done."""

    phase: str
    passed: bool
    violations: list[dict[str, Any]]
    duration_ms: float
    final: bool


@event("GUARDRAIL_CALLBACK_START", 185)
class GuardrailCallbackStart(Event):
    """A rule that is a callback is called."""

    callback_id: str
    index: int
    rule_id: str


@event("GUARDRAIL_CALLBACK_END", 186)
class GuardrailCallbackEnd(Event):
    """It has answered, or failed."""

    callback_id: str
    index: int
    rule_id: str
    duration_ms: float
    success: bool
    error: str | None = None
