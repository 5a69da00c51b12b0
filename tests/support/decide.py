"""Answer what a machine asks, without a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import cel

from app.core.guardrails.base import CalledRule
from app.core.lifecycle.effects import Ask
from app.core.lifecycle.inputs import Answer
from tests.support.guardrails import GUARDRAILS

CALLED = {
    entry.name: CalledRule(entry.name, streaming=entry.streaming, severity=entry.severity)
    for entry in GUARDRAILS
}
"""The rules of the plug-in, as options name them."""


def decide_by(options: Mapping[str, Any]) -> Callable[[Ask], Answer]:
    """Answers by the expressions of a flow's options, and by the plug-in's functions."""
    retry = options.get("retry") or {}

    def decide(ask: Ask) -> Answer:
        try:
            if ask.kind == "guardrail":
                value = _found(ask.question["rule"], ask.question["text"], ask.question["final"])
            else:
                value = cel.evaluate(retry[ask.kind], ask.question)
        except Exception as failure:
            return Answer(error=f"{type(failure).__name__}: {failure}", duration_ms=0.5)
        return Answer(value, duration_ms=0.5)

    return decide


def _found(name: str, text: str, final: bool) -> list[Any]:
    func = next(entry.func for entry in GUARDRAILS if entry.name == name)
    found = func(text, final)
    if asyncio.iscoroutine(found):
        try:
            found.send(None)
        except StopIteration as end:
            found = end.value
    return [] if found is None else [found]
