"""The canonical description of the lifecycle, where it is at hand: its scenarios, codes and fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.core.lifecycle.faults import TROUBLES
from tests.conftest import SHARED
from tests.support.invariants import canonical
from tests.support.stream_driver import Trace, drive, options_of

SCENARIOS = SHARED / "spec/l0-canonical/lifecycle-scenarios.json"
END = {"end": "stop"}
BROKEN = {"error": {"kind": "in_stream", "message": "Network failure"}}
RULES = [{"name": "custom_pattern", "options": {"patterns": ["^bad"]}}]
OWN = {
    "id": "own",
    "config": {"attempts": [{"tokens": ["bad"]}, {"tokens": ["good"]}], "retry": {"attempts": 1}},
    "expectedObservabilityEvents": [
        {"type": "SESSION_START", "assertions": {"attempt": 1}},
        {"type": "GUARDRAIL_RULE_RESULT", "assertions": {"passed": False}},
        {"type": "ATTEMPT_START", "assertions": {"attempt": 2, "isRetry": True}},
        {"type": "COMPLETE", "assertions": {"tokenCount": 1, "contentLength": 4}},
    ],
    "expectedCallbacks": {"onStart": [{"args": [1, False, False]}, {"args": [2, True, False]}]},
}
"""A scenario of the same kind, for a clone that stands alone."""


def scenarios() -> list[dict[str, Any]]:
    """All that are at hand."""
    found = json.loads(SCENARIOS.read_text("utf-8"))["scenarios"] if SCENARIOS.exists() else []
    return [OWN, *found]


def scripts_of(config: Mapping[str, Any]) -> list[list[list[dict[str, Any]]]]:
    """What the primary and its fallbacks yield at each attempt."""

    def script(attempt: Mapping[str, Any]) -> list[dict[str, Any]]:
        pieces = [{"text": token} for token in attempt["tokens"]]
        return [*pieces, BROKEN if attempt.get("error") else END]

    if "streamError" in config:
        primary = [[BROKEN]]
    else:
        primary = [script(a) for a in config.get("attempts") or config.get("primaryAttempts") or [config]]
    return [primary, *([script(stream)] for stream in config.get("fallbackStreams", ()))]


def walked(scenario: Mapping[str, Any]) -> Trace:
    config = scenario["config"]
    retry = {"attempts": 0, "max_retries": 6, "base_delay_ms": 0, **config.get("retry", {})}
    options = options_of({"retry": retry, "guardrails": RULES})
    return drive(scripts_of(config), options)[1]


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["id"])
def test_its_events_come_in_this_order(scenario: Mapping[str, Any]) -> None:
    lines = iter(walked(scenario).wire())
    for expected in scenario["expectedObservabilityEvents"]:
        wanted = {k: v for k, v in expected["assertions"].items() if not k.startswith("context.")}
        assert any(
            line["type"] == expected["type"] and wanted.items() <= line["meta"].items() for line in lines
        ), expected


NAMES = {
    "onStart": "on_start",
    "onRetry": "on_retry",
    "onFallback": "on_fallback",
    "onComplete": "on_complete",
}
NOT_BINDING = {"onRetry": (0, 1), "onFallback": (1,)}
"""Arguments in which the canonical data contradicts its own description: the retry's number, the reasons."""


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["id"])
def test_its_callbacks_are_given_this(scenario: Mapping[str, Any]) -> None:
    trace = walked(scenario)
    for name, calls in scenario.get("expectedCallbacks", {}).items():
        found = [args for line, args in trace.lines() if line == f"->{NAMES[name]}"]
        assert len(found) == len(calls)
        for args, call in zip(found, calls, strict=True):
            for place, value in enumerate(call.get("args", ())):
                if place not in NOT_BINDING.get(name, ()):
                    assert args[place] == value
            for path, value in call.items():
                if path.startswith("state."):
                    assert args[0][path.removeprefix("state.")] == value


CATEGORIES = {
    "NETWORK_ERROR": "network",
    "INITIAL_TOKEN_TIMEOUT": "transient",
    "INTER_TOKEN_TIMEOUT": "transient",
    "GUARDRAIL_VIOLATION": "content",
    "FATAL_GUARDRAIL_VIOLATION": "content",
    "DRIFT_DETECTED": "content",
    "ZERO_OUTPUT": "content",
    "INVALID_STREAM": "internal",
    "ADAPTER_NOT_FOUND": "internal",
    "FEATURE_NOT_ENABLED": "internal",
    "STREAM_ABORTED": "provider",
    "ALL_STREAMS_EXHAUSTED": "provider",
}


def test_the_twelve_codes_mean_what_they_mean_everywhere() -> None:
    ours = {row.code: row.category for row in TROUBLES if row.category != "fatal"}
    assert {code: ours[code] for code in CATEGORIES} == CATEGORIES
    if described := canonical().get("errorHandling"):
        assert described["ErrorCategory"]["codeToCategory"] == CATEGORIES
        assert described["L0ErrorCodes"]["values"].keys() == CATEGORIES.keys()
