"""Handlers that look at the answer: the rules, the detectors, and when each of them is due."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from app.core.drift.monitor import DriftMonitor, Judgement
from app.core.events.base import Callback
from app.core.events.drift import DriftCheckResult, DriftCheckSkipped
from app.core.events.guardrail import (
    GuardrailCallbackEnd,
    GuardrailCallbackStart,
    GuardrailPhaseEnd,
    GuardrailPhaseStart,
    GuardrailRuleEnd,
    GuardrailRuleResult,
    GuardrailRuleStart,
)
from app.core.guardrails.base import KEEP, CalledRule, Rule, Severity, Tail, Violation
from app.core.lifecycle import faults
from app.core.lifecycle.effects import Ask, Steps
from app.core.lifecycle.faults import Failure
from app.core.lifecycle.options import LifecycleOptions

if TYPE_CHECKING:
    from app.core.lifecycle.standing import Standing

NEVER: Final = math.inf
"""More tokens than there will be."""

_GRAVITY: Final[dict[Severity, int]] = {"warning": 0, "error": 1, "fatal": 2}


@dataclass(slots=True)
class Moment:
    """At what time rules judge a text."""

    phase: Literal["pre", "post"]
    """`pre` for a checkpoint, `post` for output."""
    final: bool
    """Whether the answer has ended."""


@dataclass(slots=True)
class Look:
    """What one rule found, and how long it took."""

    found: list[Violation]
    took_ms: float = 0.0


class Inspection:
    """What the rules and detectors know of one attempt's text."""

    __slots__ = ("_before", "_checks", "_judged", "_length", "_noted", "_rules", "in_stream", "monitor")

    def __init__(self, options: LifecycleOptions) -> None:
        self._rules = options.guardrails
        self._checks = [None if isinstance(rule, CalledRule) else rule.start() for rule in self._rules]
        self.in_stream = [index for index, rule in enumerate(self._rules) if _in_stream(rule)]
        """The places of the rules that judge an answer that goes on."""
        self.monitor = None if options.drift is None else DriftMonitor(options.drift)
        self._judged = 0
        """Pieces of the text that the rules have seen."""
        self._noted = 0
        """Pieces that the detectors have seen."""
        self._before = ""
        self._length = 0
        """Code points that the rules have seen."""

    def next_look(self, options: LifecycleOptions, count: int) -> float:
        """At how many tokens something is due next, after `count`."""
        steps = [options.guardrails_every] if self.in_stream else []
        if options.drift is not None:
            steps.append(options.drift_every)
        if options.continuation is not None:
            steps.append(options.continuation.checkpoint_every)
        return min([(count // step + 1) * step for step in steps], default=NEVER)

    def tail(self, texts: list[str], now_ms: float) -> Tail | None:
        """What the rules have not seen yet; None where there is nothing."""
        new = "".join(texts[self._judged :])
        self._judged = len(texts)
        if not new:
            return None
        before = self._before
        text = before + new
        tail = Tail(text, text.lower(), len(before), self._length - len(before), now_ms)
        self._length += len(new)
        self._before = text[-KEEP:]
        return tail

    def look(self, index: int, tail: Tail | None, whole: str | None, timer: Callable[[], float]) -> Look:
        """What one rule finds; `whole` is the text at its end. A rule that fails is a warning, no verdict."""
        check, rule = self._checks[index], self._rules[index]
        if check is None:
            return Look([])
        began = timer()
        found: list[Violation] = []
        try:
            if tail is not None and rule.streaming:
                found += check.tail(tail)
            if whole is not None:
                found += check.end(whole)
        except Exception as failure:
            found = [Violation(rule.name, f"the rule failed: {type(failure).__name__}", "warning")]
        return Look(found, timer() - began)

    def unnoted(self, texts: list[str]) -> str:
        """What the detectors have not seen yet."""
        new = "".join(texts[self._noted :])
        self._noted = len(texts)
        return new


def judge(
    session: Standing, inspection: Inspection, texts: list[str], moment: Moment
) -> Steps[Failure | None]:
    """Have the rules judge what they have not seen; the failure where they reject the text.

    Streaming rules before the end, all of them at the end. A pass that finds nothing is told only at the
    end, or when every event is wanted, or when somebody outside is asked.
    """
    rules = session.options.guardrails
    places = range(len(rules)) if moment.final else inspection.in_stream
    if not places:
        return None
    tail = inspection.tail(texts, session.now_ms)
    called = any(isinstance(rules[index], CalledRule) for index in places)
    whole = "".join(texts) if moment.final or called else ""
    looks = [inspection.look(index, tail, whole if moment.final else None, session.timer) for index in places]
    if not (moment.final or called or session.options.events == "full" or any(look.found for look in looks)):
        return None
    yield GuardrailPhaseStart(moment.phase, len(places), moment.final)
    found: list[Violation] = []
    for place, (index, look) in enumerate(zip(places, looks, strict=True)):
        found += yield from _tell(session, rules[index], look, Turn(place, whole, moment.final))
    wire = [violation.wire() for violation in found]
    took_ms = sum(look.took_ms for look in looks)
    yield GuardrailPhaseEnd(moment.phase, not found, wire, took_ms, moment.final)
    session.tally.violations += len(found)
    return _rejected(found)


@dataclass(frozen=True, slots=True)
class Turn:
    """One rule's turn in a pass."""

    place: int
    text: str
    """The whole text so far; only where somebody outside is asked."""
    final: bool


def _tell(session: Standing, rule: Rule, look: Look, turn: Turn) -> Steps[list[Violation]]:
    """The events of one rule; a rule that is called is asked now."""
    id = f"cb_{int(session.draw() * 2**48):012x}"
    name = name_of(rule)
    yield GuardrailRuleStart(turn.place, name, id)
    if isinstance(rule, CalledRule):
        look.found, look.took_ms = yield from _call(rule, id, turn)
    result = GuardrailRuleResult(turn.place, name, passed=not look.found)
    if look.found:
        result.violation = look.found[0].wire()
        result.then(*(Callback("on_violation", (violation.wire(),)) for violation in look.found))
    yield result
    yield GuardrailRuleEnd(turn.place, name, not look.found, id, look.took_ms)
    return look.found


def _call(rule: CalledRule, id: str, turn: Turn) -> Steps[tuple[list[Violation], float]]:
    yield GuardrailCallbackStart(id, turn.place, rule.title)
    answer = yield Ask("guardrail", {"rule": rule.title, "text": turn.text, "final": turn.final})
    ok = answer.error is None
    yield GuardrailCallbackEnd(id, turn.place, rule.title, answer.duration_ms, ok, answer.error)
    if answer.error is not None:
        return [Violation(rule.title, f"the rule failed: {answer.error}", "warning")], answer.duration_ms
    return [_told_by(rule, finding) for finding in answer.value or ()], answer.duration_ms


def _told_by(rule: CalledRule, finding: dict[str, Any]) -> Violation:
    return Violation(
        rule.title,
        finding["message"],
        rule.chosen or finding.get("severity") or rule.usual,
        finding.get("recoverable", True),
        finding.get("position"),
        finding.get("suggestion"),
    )


def _rejected(found: Sequence[Violation]) -> Failure | None:
    """The failure that the gravest finding is; None where none is grave."""
    gravest = max(found, key=lambda v: _GRAVITY[v.severity] + (not v.recoverable), default=None)
    if gravest is None or gravest.severity == "warning":
        return None
    fatal = gravest.severity == "fatal" or not gravest.recoverable
    trouble = faults.FATAL_GUARDRAIL if fatal else faults.GUARDRAIL
    message = f"{gravest.rule}: {gravest.message}"
    return Failure(trouble, message, detail={"violation": gravest.wire()}, position=gravest.position)


def look_for_drift(session: Standing, texts: list[str], *, final: bool) -> Steps[Failure | None]:
    """Have the detectors look at what they have not seen; the failure where they find drift."""
    drift, inspection = session.options.drift, session.inspection
    if drift is None or inspection.monitor is None:
        return None
    found = inspection.monitor.check(inspection.unnoted(texts))
    full = session.options.events == "full"
    if not isinstance(found, Judgement):
        if full:
            yield DriftCheckSkipped(found.reason)
        return None
    detected = found.detected(drift.threshold)
    event = DriftCheckResult(detected, found.score, found.metrics, drift.threshold)
    if not detected:
        if final or full:
            yield event
        return None
    session.tally.drift_detected = True
    yield event.then(Callback("on_drift", (found.kinds, found.score)))
    return Failure(faults.DRIFT, f"the answer drifts: {', '.join(found.kinds)}")


def name_of(rule: Rule) -> str:
    """What events call the rule."""
    return rule.title if isinstance(rule, CalledRule) else rule.name


def _in_stream(rule: Rule) -> bool:
    return rule.in_stream if isinstance(rule, CalledRule) else rule.streaming
