"""The catalogue of event types: names and numbers that never change, and the fields of the contract."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from app.core.events import by_code, event_types
from app.core.events.base import Callback, Event, camel, event
from app.core.events.network import NetworkError
from app.core.events.run import RunCompleted
from app.core.events.session import Complete, SessionStart, StreamInit, Token
from tests.conftest import DATA

CONTRACT: dict[str, Any] = {
    entry["type"]: entry for entry in json.loads((DATA / "l0-events.json").read_text("utf-8"))
}

FAMILIES = {
    "session": 0,
    "adapter": 20,
    "timeout": 40,
    "network": 60,
    "retry": 80,
    "fallback": 100,
    "continuation": 120,
    "abort": 140,
    "tool": 160,
    "guardrail": 180,
    "drift": 200,
    "structured": 220,
    "consensus": 240,
    "run": 260,
    "approval": 280,
}
"""Where the range of twenty numbers of each family begins."""

NUMBERS = {
    "TOKEN": 1,
    "SESSION_START": 2,
    "ATTEMPT_START": 3,
    "STREAM_INIT": 4,
    "STREAM_READY": 5,
    "FINALIZATION_START": 6,
    "FINALIZATION_END": 7,
    "COMPLETE": 8,
    "ERROR": 9,
    "SESSION_END": 10,
    "SESSION_SUMMARY": 11,
    "TURN_PAUSED": 12,
    "ADAPTER_WRAP_START": 20,
    "ADAPTER_DETECTED": 21,
    "ADAPTER_WRAP_END": 22,
    "TIMEOUT_START": 40,
    "TIMEOUT_RESET": 41,
    "TIMEOUT_TRIGGERED": 42,
    "NETWORK_ERROR": 60,
    "CONNECTION_DROPPED": 61,
    "CONNECTION_RESTORED": 62,
    "NETWORK_RECOVERY": 63,
    "RETRY_START": 80,
    "RETRY_ATTEMPT": 81,
    "RETRY_END": 82,
    "RETRY_GIVE_UP": 83,
    "RETRY_FN_START": 84,
    "RETRY_FN_RESULT": 85,
    "RETRY_FN_ERROR": 86,
    "FALLBACK_START": 100,
    "FALLBACK_MODEL_SELECTED": 101,
    "FALLBACK_END": 102,
    "CONTINUATION_START": 120,
    "CHECKPOINT_SAVED": 121,
    "RESUME_START": 122,
    "ABORT_REQUESTED": 140,
    "ABORT_COMPLETED": 141,
    "TOOL_REQUESTED": 160,
    "TOOL_START": 161,
    "TOOL_RESULT": 162,
    "TOOL_ERROR": 163,
    "TOOL_COMPLETED": 164,
    "TOOL_OBSERVED": 170,
    "TOOL_OUTCOME_OBSERVED": 171,
    "GUARDRAIL_PHASE_START": 180,
    "GUARDRAIL_RULE_START": 181,
    "GUARDRAIL_RULE_RESULT": 182,
    "GUARDRAIL_RULE_END": 183,
    "GUARDRAIL_PHASE_END": 184,
    "GUARDRAIL_CALLBACK_START": 185,
    "GUARDRAIL_CALLBACK_END": 186,
    "DRIFT_CHECK_RESULT": 200,
    "DRIFT_CHECK_SKIPPED": 201,
    "PARSE_START": 220,
    "PARSE_END": 221,
    "PARSE_ERROR": 222,
    "SCHEMA_VALIDATION_START": 223,
    "SCHEMA_VALIDATION_END": 224,
    "SCHEMA_VALIDATION_ERROR": 225,
    "AUTO_CORRECT_START": 226,
    "AUTO_CORRECT_END": 227,
    "CONSENSUS_START": 240,
    "CONSENSUS_STREAM_START": 241,
    "CONSENSUS_STREAM_END": 242,
    "CONSENSUS_OUTPUT_COLLECTED": 243,
    "CONSENSUS_ANALYSIS": 244,
    "CONSENSUS_RESOLUTION": 245,
    "CONSENSUS_END": 246,
    "RUN_QUEUED": 260,
    "RUN_STARTED": 261,
    "RUN_RECOVERED": 262,
    "RESULT_VALIDATED": 263,
    "RUN_COMPLETED": 264,
    "RUN_FAILED": 265,
    "RUN_CANCELLED": 266,
    "RUN_EXPIRED": 267,
    "RUN_WAITING": 268,
    "GATE_DENIED": 280,
    "APPROVAL_REQUESTED": 281,
    "APPROVAL_DECIDED": 282,
}
"""Stored logs depend on these: a line may be added here, never changed."""


def test_types_and_numbers_are_what_stored_logs_expect() -> None:
    assert {name: kind.code for name, kind in event_types().items()} == NUMBERS
    assert all(by_code(number).type == name for name, number in NUMBERS.items())


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_lies_in_the_range_of_its_family(name: str) -> None:
    kind = event_types()[name]
    assert FAMILIES[kind.family] <= kind.code < FAMILIES[kind.family] + 20


@pytest.mark.parametrize("name", [name for name in NUMBERS if name in CONTRACT])
def test_an_event_carries_the_fields_of_both_contracts(name: str) -> None:
    wanted = {field.rstrip("?") for key in ("meta", "canonical_meta") for field in CONTRACT[name][key]}
    found = {camel(field.name) for field in fields(event_types()[name])}  # type: ignore[arg-type]
    assert wanted <= found


def test_fields_are_sent_in_camel_case() -> None:
    start = SessionStart(attempt=1, is_retry=False, is_fallback=False, purpose="main")
    assert start.meta() == {"attempt": 1, "isRetry": False, "isFallback": False, "purpose": "main"}


def test_an_optional_field_is_left_out_and_a_nullable_one_is_not() -> None:
    assert Complete(token_count=1, content_length=2).meta() == {"tokenCount": 1, "contentLength": 2}
    assert RunCompleted(status="completed", usage=None, error=None).meta() == {
        "status": "completed",
        "usage": None,
        "error": None,
    }


def test_a_field_may_bear_the_name_of_a_class_attribute() -> None:
    error = NetworkError(error="reset", retryable=True, code_="connection_reset")
    assert error.meta() == {"error": "reset", "retryable": True, "code": "connection_reset"}
    assert error.code == NUMBERS["NETWORK_ERROR"]


def test_an_event_is_equal_by_its_fields() -> None:
    assert Token("a") == Token("a") != Token("b")
    assert StreamInit() == StreamInit()


def test_callbacks_follow_their_event() -> None:
    callback = Callback("on_start", (1, False, False))
    assert StreamInit().callbacks == ()
    assert StreamInit().then(callback).callbacks == (callback,)
    assert callback.wire() == {"name": "on_start", "args": [1, False, False]}


@pytest.mark.parametrize(("name", "number"), [("TOKEN", 19_001), ("NEVER_USED", 1)], ids=["name", "number"])
def test_declaring_twice_is_an_error_at_import(name: str, number: int) -> None:
    with pytest.raises(ValueError, match="declared twice"):

        @event(name, number)
        class _Second(Event):
            pass

    assert {kind.type: kind.code for kind in event_types().values()} == NUMBERS
