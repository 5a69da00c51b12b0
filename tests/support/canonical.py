"""The canonical scenarios of the lifecycle, where they are at hand, and one of the same kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.conftest import SHARED

_SCENARIOS: Final = SHARED / "spec/l0-canonical/lifecycle-scenarios.json"
_END: Final = {"end": "stop"}
_BROKEN: Final = {"error": {"kind": "in_stream", "message": "Network failure"}}

RULES: Final = [{"name": "custom_pattern", "options": {"patterns": ["^bad"]}}]
"""What a scenario's failing guardrail is here."""
OWN: Final[dict[str, Any]] = {
    "id": "own",
    "config": {
        "attempts": [{"tokens": ["bad"]}, {"tokens": ["good"]}],
        "retry": {"attempts": 1},
        "context": {"requestId": "own-1"},
    },
    "expectedObservabilityEvents": [
        {"type": "SESSION_START", "assertions": {"attempt": 1, "context.requestId": "own-1"}},
        {"type": "GUARDRAIL_RULE_RESULT", "assertions": {"passed": False}},
        {"type": "ATTEMPT_START", "assertions": {"attempt": 2, "isRetry": True}},
        {"type": "COMPLETE", "assertions": {"tokenCount": 1, "contentLength": 4}},
    ],
    "expectedCallbacks": {"onStart": [{"args": [1, False, False]}, {"args": [2, True, False]}]},
}

_NAMES: Final = {
    "onStart": "on_start",
    "onRetry": "on_retry",
    "onFallback": "on_fallback",
    "onComplete": "on_complete",
}
_NOT_BINDING: Final = {"onRetry": (0, 1), "onFallback": (1,)}
"""Arguments in which the canonical data contradicts its own description: the retry's number, the reasons."""


def scenarios() -> list[dict[str, Any]]:
    """All that are at hand."""
    found = json.loads(_SCENARIOS.read_text("utf-8"))["scenarios"] if _SCENARIOS.exists() else []
    return [OWN, *found]


def scripts_of(config: Mapping[str, Any]) -> list[list[list[dict[str, Any]]]]:
    """What the primary and its fallbacks yield at each attempt."""

    def script(attempt: Mapping[str, Any]) -> list[dict[str, Any]]:
        pieces = [{"text": token} for token in attempt["tokens"]]
        return [*pieces, _BROKEN if attempt.get("error") else _END]

    if "streamError" in config:
        primary = [[_BROKEN]]
    else:
        primary = [script(a) for a in config.get("attempts") or config.get("primaryAttempts") or [config]]
    return [primary, *([script(stream)] for stream in config.get("fallbackStreams", ()))]


def lifecycle_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options as a caller gives them, but for the context and the fallbacks."""
    retry = {"attempts": 0, "max_retries": 6, "base_delay_ms": 0, **config.get("retry", {})}
    return {"retry": retry, "guardrails": RULES}


def assert_events(scenario: Mapping[str, Any], events: Sequence[Mapping[str, Any]], *, context: bool) -> None:
    """What the scenario expects comes in this order; `context` says whether the events have the caller's."""
    lines = iter(events)
    for expected in scenario["expectedObservabilityEvents"]:
        wanted = {k: v for k, v in expected["assertions"].items() if not k.startswith("context.")}
        told = {k.removeprefix("context."): v for k, v in expected["assertions"].items() if k not in wanted}
        assert any(
            line["type"] == expected["type"]
            and wanted.items() <= line["meta"].items()
            and (not context or all(_at(line["context"], path) == value for path, value in told.items()))
            for line in lines
        ), expected


def _at(context: Any, path: str) -> Any:
    for name in path.split("."):
        context = context[name]
    return context


def assert_callbacks(scenario: Mapping[str, Any], fired: Sequence[tuple[str, Sequence[Any]]]) -> None:
    """The callbacks that the scenario lists were called so often and with these arguments."""
    for name, calls in scenario.get("expectedCallbacks", {}).items():
        found = [args for fired_name, args in fired if fired_name == _NAMES[name]]
        assert len(found) == len(calls), name
        for args, call in zip(found, calls, strict=True):
            for place, value in enumerate(call.get("args", ())):
                if place not in _NOT_BINDING.get(name, ()):
                    assert args[place] == value
            for path, value in call.items():
                if path.startswith("state."):
                    assert args[0][path.removeprefix("state.")] == value
