"""Lifecycle options of several levels: absent inherits, null switches off, objects merge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.options import NO_TIMEOUTS, REASONS, LifecycleOptions, RetryOptions, TimeoutOptions
from app.core.operate.lifecycle import MAX_CONTEXT, Contradiction, LifecycleBody, merge_lifecycle


def level(**said: Any) -> dict[str, Any]:
    return LifecycleBody.model_validate(said).level()


def test_nothing_said_gives_the_defaults() -> None:
    assert merge_lifecycle(None, {}, level()).options == LifecycleOptions()
    assert merge_lifecycle().options == LifecycleOptions()


@pytest.mark.parametrize(
    ("levels", "timeout"),
    [
        ([{"initial_token_ms": 1}], TimeoutOptions(initial_ms=1)),
        ([{"total_ms": 3}, {"initial_token_ms": 1}], TimeoutOptions(initial_ms=1, total_ms=3)),
        ([{"initial_token_ms": 2}, {"initial_token_ms": 1}], TimeoutOptions(initial_ms=2)),
        ([{"inter_token_ms": None}, {"inter_token_ms": 1}], TimeoutOptions(inter_ms=None)),
        ([None, {"total_ms": 3}], NO_TIMEOUTS),
        ([{}, None], NO_TIMEOUTS),
        ([{"total_ms": 3}, None, {"inter_token_ms": 9}], TimeoutOptions(None, None, 3)),
    ],
)
def test_time_limits_merge_field_by_field(levels: list[Any], timeout: TimeoutOptions) -> None:
    assert merge_lifecycle(*(level(timeout=section) for section in levels)).options.timeout == timeout


@pytest.mark.parametrize(
    ("levels", "retry"),
    [
        ([{"attempts": 1}, {"max_retries": 2}], RetryOptions(attempts=1, max_retries=2)),
        ([{"retry_on": []}], RetryOptions(retry_on=frozenset())),
        ([{"retry_on": None}, {"retry_on": []}], RetryOptions(retry_on=REASONS)),
        ([{"retry_on": ["timeout"]}, {"retry_on": ["drift"]}], RetryOptions(retry_on=frozenset({"timeout"}))),
        (
            [{"strategy": "full-jitter", "base_delay_ms": 5}],
            RetryOptions(base_delay_ms=5, strategy=Strategy.FULL_JITTER),
        ),
        ([None], RetryOptions(attempts=0, max_retries=0)),
        ([{"attempts": 2}, None], RetryOptions(attempts=2, max_retries=0)),
    ],
)
def test_retries_merge_field_by_field(levels: list[Any], retry: RetryOptions) -> None:
    assert merge_lifecycle(*(level(retry=section) for section in levels)).options.retry == retry


def test_lists_and_plain_values_replace() -> None:
    merged = merge_lifecycle(
        level(fallbacks=["b"], context={"request_id": "r"}, max_model_calls=3),
        level(fallbacks=["c", "d"], context={"tenant": "t"}, events="full", detect_zero_tokens=False),
    )
    assert merged.fallbacks == ("b",)
    assert merged.context == {"request_id": "r"}
    assert (merged.options.events, merged.options.max_model_calls) == ("full", 3)
    assert not merged.options.detect_zero_tokens
    off = merge_lifecycle(
        level(fallbacks=None, context=None, detect_zero_tokens=None), level(fallbacks=["c"])
    )
    assert (off.fallbacks, off.context, off.options.detect_zero_tokens) == ((), {}, False)


sections = st.none() | st.dictionaries(
    st.sampled_from(["initial_token_ms", "inter_token_ms", "total_ms"]),
    st.none() | st.integers(min_value=1, max_value=1_000),
)
levels_of_timeouts = st.lists(st.fixed_dictionaries({}, optional={"timeout": sections}), max_size=4)


@given(levels_of_timeouts, levels_of_timeouts)
def test_a_level_that_says_nothing_changes_nothing(above: list[dict[str, Any]], below: list[Any]) -> None:
    assert merge_lifecycle(*above, {}, None, *below) == merge_lifecycle(*above, *below)


@given(levels_of_timeouts, st.integers(min_value=1, max_value=9))
def test_the_first_level_has_the_last_word(below: list[dict[str, Any]], limit: int) -> None:
    merged = merge_lifecycle({"timeout": {"inter_token_ms": limit}}, *below)
    assert merged.options.timeout.inter_ms == limit
    assert merge_lifecycle({"timeout": None}, *below).options.timeout == NO_TIMEOUTS


@pytest.mark.parametrize(
    ("levels", "caps"),
    [
        ([{"max_retries": 1}, {"attempts": 3}], (3, 1)),
        ([None, {"attempts": 3, "max_retries": 3}], (0, 0)),
        ([{"attempts": 9}, None], (9, 0)),
        ([{"max_delay_ms": 5}, {"base_delay_ms": 9}], (3, 6)),
    ],
)
def test_a_level_may_cap_what_a_lesser_one_asks_for(levels: list[Any], caps: tuple[int, int]) -> None:
    retry = merge_lifecycle(*(level(retry=section) for section in levels)).options.retry
    assert (retry.attempts, retry.max_retries) == caps


@pytest.mark.parametrize(
    ("levels", "path"),
    [
        ([{"attempts": 3}, {"max_retries": 1}], ("retry", "attempts")),
        ([{"base_delay_ms": 9}, {}, {"max_delay_ms": 5}], ("retry", "base_delay_ms")),
        (
            [{"strategy": "fixed"}, {"base_delay_ms": 9}, {"max_delay_ms": 5}, None],
            ("retry", "base_delay_ms"),
        ),
    ],
)
def test_what_a_level_asks_for_against_a_lesser_cap_is_a_contradiction(
    levels: list[Any], path: tuple[str, str]
) -> None:
    with pytest.raises(Contradiction) as refused:
        merge_lifecycle(*(level(retry=section) for section in levels))
    assert refused.value.path == path


def test_the_body_documents_the_defaults_that_hold() -> None:
    told = LifecycleBody.model_validate({"timeout": {}, "retry": {}, "detect_zero_tokens": True})
    assert merge_lifecycle(told.model_dump()).options == LifecycleOptions()


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ({"timeout": {"initial_token_ms": 0}}, ("timeout", "initial_token_ms")),
        ({"timeout": {"initial_token_ms": 1.5}}, ("timeout", "initial_token_ms")),
        ({"timeout": {"initial_token_ms": "5"}}, ("timeout", "initial_token_ms")),
        ({"timeout": {"unknown": 1}}, ("timeout", "unknown")),
        ({"retry": {"attempts": None}}, ("retry", "attempts")),
        ({"retry": {"attempts": 3, "max_retries": 2}}, ("retry",)),
        ({"retry": {"retry_on": ["boredom"]}}, ("retry", "retry_on", 0)),
        ({"retry": {"strategy": "hope"}}, ("retry", "strategy")),
        ({"events": None}, ("events",)),
        ({"max_model_calls": 0}, ("max_model_calls",)),
        ({"check_intervals": {"drift": 0}}, ("check_intervals", "drift")),
        ({"context": {"x": "y" * MAX_CONTEXT}}, ("context",)),
        ({"detect_zero_tokens": 1}, ("detect_zero_tokens",)),
    ],
)
def test_what_makes_no_sense_is_refused_in_its_place(said: dict[str, Any], where: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        LifecycleBody.model_validate(said)
    assert [fault["loc"] for fault in refused.value.errors()] == [where]
