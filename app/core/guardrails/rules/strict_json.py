"""The whole answer must be one JSON object or array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from pydantic import Field

from app.core.guardrails.base import Check, NoOptions, Rule, Severity, Tail, Violation
from app.core.guardrails.json_grammar import Fault, fenced, parsed

_ASK: Final = "Answer with a JSON object or array and nothing else."


class StrictJsonOptions(NoOptions):
    """What a request may choose for the rule `strict_json`."""

    allow_fence: bool = Field(False, description="Whether the JSON may stand in one code block marked json.")


class StrictJsonCheck(Check):
    """Parses one answer when it has ended."""

    def __init__(self, rule: StrictJson, *, allow_fence: bool) -> None:
        self._rule = rule
        self._allow_fence = allow_fence

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """Nothing; an answer that goes on is not judged."""
        return ()

    def end(self, text: str) -> Sequence[Violation]:
        """The first thing that makes the answer anything else than an object or array."""
        answer = text.lstrip()
        start = len(text) - len(answer)
        answer = answer.rstrip()
        block = fenced(answer) if self._allow_fence else None
        if block is not None:
            answer, start = block.body, start + block.start
        if not answer or answer.isspace():
            return self._found("the answer is empty", None)
        value = parsed(answer)
        if isinstance(value, Fault):
            place = None if value.position is None else start + value.position
            return self._found(f"not valid JSON: {value.message}", place)
        if not isinstance(value, dict | list):
            return self._found("the JSON value is neither an object nor an array", start)
        return ()

    def _found(self, message: str, position: int | None) -> Sequence[Violation]:
        return (self._rule.found(message, position, suggestion=_ASK),)


class StrictJson(Rule):
    """The answer is a JSON object or array and nothing else."""

    name: ClassVar[str] = "strict_json"
    streaming: ClassVar[bool] = False
    severity: ClassVar[Severity] = "error"
    Options: ClassVar[type[NoOptions]] = StrictJsonOptions

    def start(self) -> StrictJsonCheck:
        """A fresh check, for one attempt."""
        return StrictJsonCheck(self, allow_fence=self.options.model_dump()["allow_fence"])


RULE = StrictJson
