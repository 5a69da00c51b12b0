"""Answer what the machine of a stream asks: the caller's expressions and the guardrails of plug-ins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import structlog

from app.core.addresses import AddressRule
from app.core.governance.decision import VARIABLES
from app.core.guardrails.base import Rule
from app.core.lifecycle.effects import Ask
from app.core.lifecycle.inputs import Answer
from app.core.lifecycle.options import RetryOptions
from app.ports.ambient import Clock
from app.ports.expressions import ExpressionFailed, Expressions
from app.ports.guardrails import CalledGuardrails, GuardrailFailed

log = structlog.get_logger("decisions")

NOT_EXPOSED: Final = "the operator has not listed the variable in BRANCHLINE_EXPOSED_ENV"
"""What is wrong with a variable that may not be named."""

_RETRY: Final = ("error", "category", "attempt", "state")
_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "should_retry": _RETRY,
    "calculate_delay": (*_RETRY, "base_delay_ms", "max_delay_ms", "retry_after_ms"),
    "gate": VARIABLES,
}
"""What each of the caller's expressions may use; those who ask give just that."""


class Choices:
    """What clients may choose in this process; the context in which bodies are validated."""

    def __init__(
        self,
        expressions: Expressions,
        rules: Mapping[str, Rule],
        addresses: AddressRule | None = None,
        exposed: Collection[str] = (),
    ) -> None:
        """`addresses` tells which ones gates and hooks may have; without it their form alone is checked.

        `exposed` are the variables that what is posted to them may be signed with.
        """
        self._expressions = expressions
        self._addresses = addresses or AddressRule(private=True)
        self._exposed = exposed
        self.rules = rules

    def fault(self, name: str, expression: str) -> str | None:
        """What is wrong with an expression; see `core.operate.lifecycle.Outside`."""
        return self._expressions.fault(expression, _VARIABLES[name])

    def address_fault(self, url: str) -> str | None:
        """What is wrong with an address; see `core.governance.remote.Outside`."""
        return self._addresses.fault_of_any(url)

    def variable_fault(self, name: str) -> str | None:
        """What is wrong with a variable; see `core.governance.remote.Outside`."""
        return None if name in self._exposed else NOT_EXPOSED


class Decisions:
    """Decides; a failure is an answer too, so a stream never waits for ever."""

    def __init__(self, expressions: Expressions, guardrails: CalledGuardrails, clock: Clock) -> None:
        self._expressions = expressions
        self._guardrails = guardrails
        self._clock = clock

    async def decide(self, ask: Ask, options: RetryOptions) -> Answer:
        """The answer to a question of a stream with these options; never raises."""
        began_ms = self._clock.mono_ms()
        value, error = None, None
        try:
            value = await self._value(ask, options)
        except (ExpressionFailed, GuardrailFailed) as failure:
            error = str(failure)
        except Exception as bug:
            log.exception("a decision failed by a bug", kind=ask.kind)
            error = f"it could not be asked: {type(bug).__name__}"
        return Answer(value, error, round(self._clock.mono_ms() - began_ms, 3))

    async def _value(self, ask: Ask, options: RetryOptions) -> Any:
        match ask.kind:
            case "should_retry":
                return await self._evaluated(options.should_retry, ask)
            case "calculate_delay":
                return await self._evaluated(options.calculate_delay, ask)
            case "guardrail":
                question = ask.question
                return await self._guardrails.call(
                    question["rule"], question["text"], final=question["final"]
                )
        raise ExpressionFailed(f"nobody decides {ask.kind}")

    async def _evaluated(self, expression: str | None, ask: Ask) -> Any:
        if expression is None:
            raise ExpressionFailed("there is no expression")
        return await self._expressions.evaluate(expression, ask.question)
