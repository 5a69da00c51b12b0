"""What each fault is called, and what may follow from it."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.faults import Fault, FaultKind
from app.core.lifecycle.faults import TROUBLES, Spends, failure_of
from app.core.lifecycle.options import REASONS

CONTRACT = """
NETWORK_ERROR          network   network     network_error max_retries fallback
NETWORK_ERROR          fatal     network     -             nothing     fallback
INITIAL_TOKEN_TIMEOUT  transient timeout     timeout       max_retries fallback
INTER_TOKEN_TIMEOUT    transient timeout     timeout       max_retries fallback
RATE_LIMITED           transient model       rate_limit    max_retries fallback
RATE_LIMITED           transient model       -             nothing     fallback
PROVIDER_ERROR         transient model       -             nothing     fallback
PROVIDER_ERROR         transient model       server_error  max_retries fallback
STREAM_TRUNCATED       model     model       incomplete    both        fallback
PROVIDER_ERROR         model     unknown     server_error  both        fallback
PROVIDER_ERROR         fatal     model       -             nothing     fallback
PROVIDER_ERROR         transient model       server_error  max_retries fallback
GUARDRAIL_VIOLATION    content   model       guardrail_violation both  fallback
FATAL_GUARDRAIL_VIOLATION content model      -             nothing     -
DRIFT_DETECTED         content   model       drift         both        fallback
INVALID_TOOL_ARGUMENTS model     tool        incomplete    both        fallback
ZERO_OUTPUT            content   zero_output zero_output   both        fallback
MODEL_REFUSAL          model     model       -             nothing     -
CONTENT_FILTERED       model     model       -             nothing     -
OUTPUT_TRUNCATED       model     model       -             nothing     -
ADAPTER_NOT_FOUND      internal  unknown     -             nothing     fallback
INVALID_STREAM         internal  unknown     -             nothing     fallback
FEATURE_NOT_ENABLED    internal  unknown     -             nothing     fallback
PROVIDER_ERROR         internal  unknown     -             nothing     fallback
MODEL_CALLS_EXHAUSTED  provider  unknown     -             nothing     -
STREAM_ABORTED         provider  abort       -             nothing     -
DEADLINE_EXCEEDED      provider  abort       -             nothing     -
ALL_STREAMS_EXHAUSTED  provider  unknown     -             nothing     -
"""

SPENDS = {Spends.NOTHING: "nothing", Spends.RETRIES: "max_retries", Spends.BOTH: "both"}


def test_the_table_is_the_contract() -> None:
    found = [
        [
            row.code,
            row.category,
            row.failure_type,
            row.reason or "-",
            SPENDS[row.spends],
            "fallback" if row.fallback else "-",
        ]
        for row in TROUBLES
    ]
    assert found == [line.split() for line in CONTRACT.strip().splitlines()]


def test_a_fault_is_retried_if_and_only_if_it_has_a_reason_that_can_be_chosen() -> None:
    for row in TROUBLES:
        assert row.retryable == (row.reason is not None)
        assert row.reason is None or row.reason in REASONS


def test_only_trouble_with_the_connection_is_told_as_a_network_error() -> None:
    assert {row.code for row in TROUBLES if row.network} == {"NETWORK_ERROR"}


STATUS, IN_STREAM = FaultKind.STATUS, FaultKind.IN_STREAM

CLASSIFIED: list[tuple[Fault, str, str]] = [
    (Fault(FaultKind.NETWORK, "x", type="dns_error"), "NETWORK_ERROR", "network"),
    (Fault(FaultKind.TLS, "x"), "NETWORK_ERROR", "fatal"),
    (Fault(STATUS, "x", status=429), "RATE_LIMITED", "transient"),
    (Fault(STATUS, "x", status=408), "PROVIDER_ERROR", "transient"),
    (Fault(STATUS, "x", status=500), "PROVIDER_ERROR", "transient"),
    (Fault(STATUS, "x", status=529), "PROVIDER_ERROR", "transient"),
    (Fault(STATUS, "x", status=401), "PROVIDER_ERROR", "fatal"),
    (Fault(STATUS, "x", status=404), "PROVIDER_ERROR", "fatal"),
    (Fault(STATUS, "x", status=302), "PROVIDER_ERROR", "model"),
    (Fault(IN_STREAM, "x", status=400), "PROVIDER_ERROR", "fatal"),
    (Fault(IN_STREAM, "x", status=502), "PROVIDER_ERROR", "transient"),
    (Fault(IN_STREAM, "x", status=429), "RATE_LIMITED", "transient"),
    (Fault(IN_STREAM, "x", type="overloaded_error"), "PROVIDER_ERROR", "transient"),
    (Fault(IN_STREAM, "x", type="rate_limit_error"), "RATE_LIMITED", "transient"),
    (Fault(IN_STREAM, "x", type="RateLimitError"), "RATE_LIMITED", "transient"),
    (Fault(IN_STREAM, "x", type="api_error"), "PROVIDER_ERROR", "model"),
    (Fault(IN_STREAM, "Server is overloaded, try later"), "PROVIDER_ERROR", "transient"),
    (Fault(IN_STREAM, "Too many requests"), "RATE_LIMITED", "transient"),
    (Fault(IN_STREAM, "generate limits"), "PROVIDER_ERROR", "model"),
    (Fault(IN_STREAM, "the corporate limit"), "PROVIDER_ERROR", "model"),
    (Fault(IN_STREAM, "x"), "PROVIDER_ERROR", "model"),
    (Fault(FaultKind.MALFORMED, "x"), "PROVIDER_ERROR", "model"),
    (Fault(FaultKind.INTERNAL, "x"), "PROVIDER_ERROR", "internal"),
    (Fault(FaultKind.INTERNAL, "x", type="adapter_not_found"), "ADAPTER_NOT_FOUND", "internal"),
    (Fault(FaultKind.INTERNAL, "x", type="invalid_stream"), "INVALID_STREAM", "internal"),
    (Fault(FaultKind.INTERNAL, "x", type="address_refused"), "PROVIDER_ERROR", "internal"),
    (Fault(FaultKind.INTERNAL, "x", type="feature_not_enabled"), "FEATURE_NOT_ENABLED", "internal"),
]


@pytest.mark.parametrize(
    ("fault", "code", "category"),
    CLASSIFIED,
    ids=[f"{f.kind}-{f.status or f.type or f.message}" for f, _, _ in CLASSIFIED],
)
def test_a_fault_is_classified_by_kind_then_status_then_type_then_text(
    fault: Fault, code: str, category: str
) -> None:
    error = failure_of(fault, opened=True).error
    assert (error.code, error.category) == (code, category)


def test_a_status_beats_a_type_and_a_type_beats_the_text() -> None:
    by_status = Fault(IN_STREAM, "overloaded", type="overloaded_error", status=400)
    assert failure_of(by_status, opened=True).error.category == "fatal"
    by_type = Fault(IN_STREAM, "overloaded", type="invalid_request_error")
    assert failure_of(by_type, opened=True).error.category == "model"


def test_an_answer_that_never_was_a_stream_is_told_from_one_that_broke() -> None:
    fault = Fault(FaultKind.MALFORMED, "an HTML page")
    assert failure_of(fault, opened=False).error.code == "INVALID_STREAM"
    assert failure_of(fault, opened=True).error.code == "PROVIDER_ERROR"


def test_what_helps_a_diagnosis_is_kept() -> None:
    fault = Fault(
        IN_STREAM,
        "did not match",
        type="invalid_request_error",
        status=400,
        provider_code="tool_use_failed",
        retry_after_ms=7,
        detail={"failed_generation": "{"},
    )
    failure = failure_of(fault, opened=True)
    wanted: dict[str, Any] = {
        "code": "PROVIDER_ERROR",
        "message": "did not match",
        "category": "fatal",
        "retryable": False,
        "detail": {
            "status": 400,
            "type": "invalid_request_error",
            "provider_code": "tool_use_failed",
            "failed_generation": "{",
        },
    }
    assert failure.error.wire() == wanted
    assert failure.retry_after_ms == 7
