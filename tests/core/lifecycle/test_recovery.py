"""What follows from a failed attempt: retries, fallbacks, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import NO_RETRIES, NO_TIMEOUTS, LifecycleOptions, RetryOptions
from app.core.lifecycle.table import State
from tests.core.lifecycle.scripts import DENIED, END, QUICK, RESET
from tests.support.stream_driver import StreamDriver, drive


def test_every_part_of_a_retried_error_is_said() -> None:
    _, trace = drive([[[{"text": "a"}, RESET], [{"text": "b"}, END]]], QUICK)
    assert trace.of("ERROR") == [
        {
            "error": "connection_reset",
            "code": "NETWORK_ERROR",
            "errorCode": "NETWORK_ERROR",
            "failureType": "network",
            "recoveryStrategy": "retry",
            "policy": {
                "retryEnabled": True,
                "fallbackEnabled": False,
                "maxRetries": 6,
                "maxFallbacks": 0,
                "attempt": 1,
                "fallbackIndex": 0,
            },
        }
    ]
    (on_error,) = trace.callbacks("on_error")
    assert on_error.args[0] == {
        "code": "NETWORK_ERROR",
        "message": "connection_reset",
        "category": "network",
        "retryable": True,
        "detail": {"type": "connection_reset"},
    }


def test_a_failed_opening_drops_no_connection_but_recovers() -> None:
    driver = StreamDriver(
        StreamMachine(LifecycleOptions(), models=1, draw=lambda: 0.0),
        [[[RESET], [{"error": {"kind": "status", "status": 503}}], [RESET], [{"text": "ok"}, END]]],
    )
    trace = driver.run()
    assert "CONNECTION_DROPPED" not in trace.types()
    assert "CONNECTION_RESTORED" not in trace.types()
    # Half of 1,000 ms, of 2,000 ms and of 4,000 ms.
    assert trace.of("NETWORK_RECOVERY") == [{"attemptCount": 3, "durationMs": 3_500}]


def test_a_drop_is_restored_when_the_next_answer_begins() -> None:
    driver = StreamDriver(
        StreamMachine(LifecycleOptions(), models=1, draw=lambda: 0.0),
        [[[{"text": "a"}, RESET], [{"open_wait_ms": 70}, {"wait_ms": 30}, {"text": "b"}, END]]],
    )
    trace = driver.run()
    assert trace.of("CONNECTION_DROPPED") == [{"reason": "connection_reset"}]
    assert trace.of("CONNECTION_RESTORED") == [{"durationMs": 570}]
    assert trace.of("NETWORK_RECOVERY") == [{"attemptCount": 1, "durationMs": 600}]


def test_a_certificate_that_is_wrong_is_not_tried_again() -> None:
    tls = {"error": {"kind": "tls", "message": "certificate has expired"}}
    _, trace = drive([[[tls]], [[{"text": "b"}, END]]], QUICK)
    assert trace.of("NETWORK_ERROR") == [{"error": "certificate has expired", "retryable": False}]
    assert trace.of("RETRY_GIVE_UP")[0]["reason"] == "not_retryable"
    assert trace.code is None


def test_back_off_waits_between_on_retry_and_the_next_attempt() -> None:
    driver = StreamDriver(
        StreamMachine(LifecycleOptions(), models=1, draw=lambda: 0.5), [[[RESET], [{"text": "a"}, END]]]
    )
    trace = driver.run()
    assert trace.of("RETRY_ATTEMPT") == [
        {"attempt": 1, "reason": "network_error", "delayMs": 750, "maxAttempts": 6}
    ]
    times = {entry.event.type: entry.at_ms for entry in trace.seen}
    assert (times["RETRY_ATTEMPT"], times["ATTEMPT_START"]) == (0, 750)


def test_a_server_that_asks_to_wait_is_heard() -> None:
    busy = {"error": {"kind": "status", "status": 429, "retry_after_ms": 5_000}}
    _, trace = drive([[[busy], [{"text": "a"}, END]]], LifecycleOptions())
    assert trace.of("RETRY_ATTEMPT")[0]["delayMs"] == 5_000
    assert trace.of("ERROR")[0]["code"] == "RATE_LIMITED"


def test_the_two_budgets_are_spent_as_the_faults_demand() -> None:
    options = LifecycleOptions(
        timeout=NO_TIMEOUTS, retry=RetryOptions(attempts=2, max_retries=4, base_delay_ms=0)
    )
    cut = [{"text": "x"}]
    _, trace = drive([[cut, [RESET], cut, [RESET], cut]], options)
    assert [meta["maxAttempts"] for meta in trace.of("RETRY_START")] == [2, 4, 2, 4]
    assert [meta["attempt"] for meta in trace.of("RETRY_ATTEMPT")] == [1, 2, 3, 4]
    assert trace.of("RETRY_GIVE_UP") == [
        {
            "attempts": 4,
            "lastError": "the answer ended before it was complete",
            "attempt": 5,
            "maxAttempts": 2,
            "reason": "retries_exhausted",
        }
    ]
    assert trace.of("SESSION_SUMMARY")[0]["retryCount"] == 4


def test_faults_of_the_answer_are_limited_by_attempts_alone_where_retries_are_left() -> None:
    options = LifecycleOptions(timeout=NO_TIMEOUTS, retry=RetryOptions(attempts=1, base_delay_ms=0))
    _, trace = drive([[[{"text": "x"}]]], options)
    assert len(trace.opens) == 2
    assert trace.of("RETRY_GIVE_UP")[0]["maxAttempts"] == 1


def test_both_budgets_begin_anew_on_a_fallback() -> None:
    options = LifecycleOptions(
        timeout=NO_TIMEOUTS, retry=RetryOptions(attempts=1, max_retries=1, base_delay_ms=0)
    )
    cut = [{"text": "x"}]
    _, trace = drive([[cut], [cut, [{"text": "good"}, END]]], options)
    assert trace.code is None
    assert [meta["attempt"] for meta in trace.of("RETRY_ATTEMPT")] == [1, 1]
    assert [meta["attempt"] for meta in trace.of("ATTEMPT_START")] == [2, 2]
    assert [(o.fallback_index, o.attempt, o.opening) for o in trace.opens] == [
        (0, 1, 1),
        (0, 2, 2),
        (1, 1, 3),
        (1, 2, 4),
    ]
    assert trace.of("SESSION_END") == [{"success": True, "totalAttempts": 4}]


def test_decorrelated_pauses_begin_anew_on_a_fallback() -> None:
    options = LifecycleOptions(
        timeout=NO_TIMEOUTS, retry=RetryOptions(max_retries=2, strategy=Strategy.DECORRELATED)
    )
    _, trace = drive([[[RESET]], [[RESET], [{"text": "a"}, END]]], options)
    assert [meta["delayMs"] for meta in trace.of("RETRY_ATTEMPT")] == [2_000, 3_500, 2_000]


def test_when_every_model_failed_the_error_names_each_cause() -> None:
    machine, trace = drive([[[DENIED]], [[{"error": {"kind": "status", "status": 404}}]]], QUICK)
    assert trace.finish
    error = trace.finish.error
    assert error
    assert (error.code, error.category, error.retryable) == ("ALL_STREAMS_EXHAUSTED", "provider", False)
    assert [cause["detail"]["status"] for cause in error.detail["causes"]] == [401, 404]
    assert machine.state is State.ERROR


def test_asking_again_later_may_help_if_it_may_with_one_of_the_models() -> None:
    options = LifecycleOptions(timeout=NO_TIMEOUTS, retry=NO_RETRIES)
    _, trace = drive([[[RESET]], [[DENIED]]], options)
    assert trace.finish
    assert trace.finish.error
    assert (trace.finish.error.code, trace.finish.error.retryable) == ("ALL_STREAMS_EXHAUSTED", True)


def test_several_fallbacks_are_numbered_from_0_for_on_fallback() -> None:
    _, trace = drive([[[DENIED]], [[DENIED]], [[{"text": "c"}, END]]], QUICK)
    assert [callback.args for callback in trace.callbacks("on_fallback")] == [
        (0, "previous_failed"),
        (1, "previous_failed"),
    ]
    assert trace.of("FALLBACK_END") == [
        {"index": 1, "success": False, "finalIndex": 1},
        {"index": 2, "success": True, "finalIndex": 2},
    ]
    types = trace.types()
    assert types.index("FALLBACK_END") == types.index("FALLBACK_START", types.index("FALLBACK_START") + 1) - 1


def test_a_fault_that_allows_no_fallback_ends_the_run_under_its_own_code() -> None:
    _, trace = drive([[[DENIED]], [[{"refusal": "no"}, END]], [[{"text": "c"}, END]]], QUICK)
    assert trace.code == "MODEL_REFUSAL"
    assert trace.of("FALLBACK_END") == [{"index": 1, "success": False, "finalIndex": 1}]


@pytest.mark.parametrize(
    ("scripts", "expected"),
    [
        ([[[RESET], [{"text": "a"}, END]]], "NETWORK_ERROR"),
        ([[[DENIED]], [[{"text": "a"}, END]]], "PROVIDER_ERROR"),
        ([[[DENIED]], [[RESET], [{"text": "a"}, END]]], "NETWORK_ERROR"),
        ([[[DENIED]], [[DENIED]]], "ALL_STREAMS_EXHAUSTED"),
    ],
    ids=["no retry", "no fallback", "no retry of the fallback", "nothing would have been left anyway"],
)
def test_the_last_model_call_is_the_last(scripts: Any, expected: str) -> None:
    calls = 1 if expected == "PROVIDER_ERROR" else len(scripts)
    _, trace = drive(scripts, QUICK, calls_left=calls)
    assert trace.code == expected
    assert trace.of("ERROR")[-1]["recoveryStrategy"] == "halt"
    exhausted = trace.of("RETRY_GIVE_UP")[-1]["reason"] == "model_calls_exhausted"
    assert exhausted is (expected != "ALL_STREAMS_EXHAUSTED")
    assert len(trace.opens) == calls
