"""The canonical description of the lifecycle, where it is at hand: its scenarios, codes and fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.core.lifecycle.faults import TROUBLES
from tests.support.canonical import assert_callbacks, assert_events, lifecycle_of, scenarios, scripts_of
from tests.support.invariants import canonical
from tests.support.stream_driver import Trace, drive, options_of


def walked(scenario: Mapping[str, Any]) -> Trace:
    config = scenario["config"]
    return drive(scripts_of(config), options_of(lifecycle_of(config)))[1]


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["id"])
def test_its_events_come_in_this_order(scenario: Mapping[str, Any]) -> None:
    assert_events(scenario, walked(scenario).wire(), context=False)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["id"])
def test_its_callbacks_are_given_this(scenario: Mapping[str, Any]) -> None:
    lines = walked(scenario).lines()
    assert_callbacks(scenario, [(line[2:], args) for line, args in lines if line.startswith("->")])


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
