"""Limits, pauses, the deadline and aborts, on a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.lifecycle.options import NO_TIMEOUTS, LifecycleOptions, RetryOptions, TimeoutOptions
from tests.core.lifecycle.scripts import DENIED, END, QUICK, RESET, Steps
from tests.support.stream_driver import drive

SHORT = LifecycleOptions(
    timeout=TimeoutOptions(initial_ms=500, inter_ms=500, alive_ms=1_000), retry=RetryOptions(max_retries=0)
)
PING: dict[str, Any] = {"keep_alive": True}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([PING, {"wait_ms": 400}, PING, {"wait_ms": 501}], "INITIAL_TOKEN_TIMEOUT"),
        ([*[PING, {"wait_ms": 400}] * 3], "INITIAL_TOKEN_TIMEOUT"),
        ([*[PING, {"wait_ms": 400}] * 2, {"text": "a"}, END], None),
        ([{"text": ""}, {"wait_ms": 600}], "INITIAL_TOKEN_TIMEOUT"),
        ([{"reasoning": ""}, {"refusal": ""}, {"wait_ms": 600}], "INITIAL_TOKEN_TIMEOUT"),
        ([{"usage": {"input_tokens": 1, "output_tokens": 0}}, {"wait_ms": 600}], "INITIAL_TOKEN_TIMEOUT"),
        ([{"reasoning": "hm"}, {"wait_ms": 600}], "INTER_TOKEN_TIMEOUT"),
        ([{"refusal": "hm"}, {"wait_ms": 600}], "INTER_TOKEN_TIMEOUT"),
        ([{"tool_call": {"index": 0, "name": "f"}}, {"wait_ms": 600}], "INTER_TOKEN_TIMEOUT"),
        ([{"text": "a"}, *[PING, {"wait_ms": 400}] * 9, {"text": "b"}, END], "INTER_TOKEN_TIMEOUT"),
        ([{"text": "a"}, *[PING, {"wait_ms": 300}] * 3, {"text": "b"}, END], None),
        ([*[{"text": "x"}, {"wait_ms": 400}] * 9, {"text": "b"}, END], None),
        ([*[{"reasoning": "x"}, {"wait_ms": 400}] * 9, {"text": "b"}, END], None),
        ([*[{"tool_call": {"index": 0, "name": "f"}}, {"wait_ms": 400}] * 9, END], None),
        ([{"text": "a"}, {"wait_ms": 499.9}, {"text": "b"}, END], None),
        ([{"text": "a"}, {"wait_ms": 500}, {"text": "b"}, END], "INTER_TOKEN_TIMEOUT"),
        ([{"text": "a"}, {"hold_ms": 9_000}, {"wait_ms": 400}, {"text": "b"}, END], None),
        ([{"open_wait_ms": 400}, {"wait_ms": 200}, {"text": "b"}, END], "INITIAL_TOKEN_TIMEOUT"),
    ],
    ids=[
        "pings do not end the initial limit",
        "pings put the initial limit off up to a cap",
        "pings put the initial limit off",
        "an empty chunk does not end it",
        "nor does empty reasoning or an empty refusal",
        "usage does not end it",
        "reasoning ends it",
        "a refusal ends it",
        "a tool fragment ends it",
        "pings count up to a cap",
        "pings count below the cap",
        "text resets the inter limit",
        "reasoning resets the inter limit",
        "tool fragments reset the inter limit",
        "just in time",
        "a limit strikes at its very moment",
        "time in which we do not read does not count",
        "the opening counts for the initial limit",
    ],
)
def test_limits(steps: list[dict[str, Any]], expected: str | None) -> None:
    _, trace = drive([[steps]], SHORT)
    assert trace.code == expected
    assert trace.closes == 1


def test_pings_without_progress_end_at_the_cap() -> None:
    pings: Steps = [PING, {"wait_ms": 400}]
    _, trace = drive([[[{"text": "a"}, *pings * 9]]], SHORT)
    (triggered,) = (entry for entry in trace.seen if entry.event.type == "TIMEOUT_TRIGGERED")
    assert triggered.at_ms == 1_000
    assert triggered.event.meta() == {"timeoutType": "inter", "elapsedMs": 500, "configuredMs": 500}


@pytest.mark.parametrize("base_delay_ms", [0, 1_000], ids=["at once", "after a pause"])
def test_each_attempt_has_its_own_limits(base_delay_ms: int) -> None:
    options = LifecycleOptions(
        timeout=TimeoutOptions(initial_ms=500, inter_ms=100), retry=RetryOptions(base_delay_ms=base_delay_ms)
    )
    slow: Steps = [{"wait_ms": 400}, {"text": "a"}, {"wait_ms": 50}, RESET]
    machine, trace = drive([[slow, [{"wait_ms": 400}, {"text": "b"}, END]]], options)
    assert trace.code is None
    assert machine.text == "b"
    assert [meta["tokenIndex"] for meta in trace.of("TIMEOUT_RESET")] == [0, 0]


def test_only_the_full_log_has_a_reset_for_every_token() -> None:
    steps: list[Steps] = [[{"text": "a"}, {"text": "b"}, {"text": "c"}, END]]
    _, trace = drive([steps], LifecycleOptions(events="full"))
    assert [meta["tokenIndex"] for meta in trace.of("TIMEOUT_RESET")] == [0, 1, 2]
    _, trace = drive([steps], LifecycleOptions())
    assert [meta["tokenIndex"] for meta in trace.of("TIMEOUT_RESET")] == [0]
    _, trace = drive([steps], LifecycleOptions(events="full", timeout=NO_TIMEOUTS))
    assert trace.of("TIMEOUT_RESET") == []


def test_a_limit_that_is_off_neither_strikes_nor_is_told() -> None:
    steps: list[Steps] = [[{"wait_ms": 60_000}, {"text": "a"}, {"wait_ms": 300}, {"text": "b"}, END]]
    machine, trace = drive([steps], LifecycleOptions(timeout=TimeoutOptions(initial_ms=None, inter_ms=500)))
    assert machine.text == "ab"
    assert trace.of("TIMEOUT_START") == []


@pytest.mark.parametrize(
    ("steps", "retry", "closes"),
    [
        ([{"open_wait_ms": 60_000}], RetryOptions(), 1),
        ([{"text": "one "}, {"wait_ms": 60_000}], RetryOptions(), 1),
        ([{"text": "one "}, RESET], RetryOptions(base_delay_ms=60_000, max_delay_ms=60_000), 0),
    ],
    ids=["while opening", "in the text", "in a pause"],
)
@pytest.mark.parametrize("cause", ["deadline", "abort"])
def test_abort_and_deadline_take_effect_at_once(
    cause: str, steps: list[dict[str, Any]], retry: RetryOptions, closes: int
) -> None:
    total = 700 if cause == "deadline" else None
    options = LifecycleOptions(
        timeout=TimeoutOptions(initial_ms=None, inter_ms=None, total_ms=total), retry=retry
    )
    machine, trace = drive([[steps]], options, abort_at_ms=700 if cause == "abort" else None)
    assert trace.seen[-1].at_ms == 700
    assert trace.closes == closes
    assert trace.code == ("STREAM_ABORTED" if cause == "abort" else "DEADLINE_EXCEEDED")
    assert trace.finish
    assert trace.finish.aborted is (cause == "abort")
    text = "one " if "text" in steps[0] else ""
    assert trace.types()[-4:] == ["ABORT_REQUESTED", "ABORT_COMPLETED", "SESSION_END", "SESSION_SUMMARY"]
    assert trace.of("ABORT_REQUESTED") == [{"source": "user" if cause == "abort" else "timeout"}]
    assert trace.of("ABORT_COMPLETED") == [{"tokenCount": len(text) // 4, "contentLength": len(text)}]
    assert trace.callbacks("on_abort")[0].args == (len(text) // 4, len(text))
    after_failure = len(trace.callbacks("on_error"))
    assert after_failure == len(trace.of("ERROR")) == (1 if RESET in steps else 0)
    assert machine.text == text


def test_an_abort_in_a_fallback_says_that_the_fallback_ended() -> None:
    _, trace = drive([[[DENIED]], [[{"text": "a"}, {"wait_ms": 9_000}]]], QUICK, abort_at_ms=100)
    assert trace.types()[-5:] == [
        "ABORT_REQUESTED",
        "ABORT_COMPLETED",
        "FALLBACK_END",
        "SESSION_END",
        "SESSION_SUMMARY",
    ]
    assert trace.of("FALLBACK_END")[0]["success"] is False
