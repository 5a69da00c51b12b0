"""The limits of one model, as tables and properties; time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.limits.options import BreakerLimits, ModelLimits
from app.core.limits.room import MINUTE_MS, Breaker, Broken, Circuit, Later, Outcome, Room

WELL, FAILED, NOTHING = Outcome.WELL, Outcome.FAILED, Outcome.NOTHING


def room(**limits: Any) -> Room:
    """A room at time 0."""
    return Room(ModelLimits(**limits), 0.0)


def test_without_limits_everybody_is_let_in() -> None:
    free = room()
    assert [free.begin(0) for _ in range(1_000)] == [None] * 1_000


def test_so_many_are_under_way_at_once() -> None:
    two = room(concurrency=2)
    assert [two.begin(0) for _ in range(3)] == [None, None, Later(None)]
    two.end(WELL, 1)
    assert [two.begin(1) for _ in range(2)] == [None, Later(None)]


def test_a_rate_lets_a_minute_s_worth_in_and_then_one_at_a_time() -> None:
    sixty = room(requests_per_minute=60)
    assert [sixty.begin(0) for _ in range(60)] == [None] * 60
    assert sixty.begin(0) == Later(1_000)
    assert sixty.begin(999) == Later(1_000)
    assert sixty.begin(1_000) is None
    assert sixty.begin(1_000) == Later(2_000)


def test_tokens_are_counted_when_they_were_used() -> None:
    some = room(tokens_per_minute=6_000)
    assert some.begin(0) is None
    some.end(WELL, 0, tokens=6_000 + 100)
    # A hundred too many and one to begin with, at a hundred per second.
    assert some.begin(0) == Later(1_010)
    assert some.begin(1_010) is None


@pytest.mark.parametrize(
    ("limits", "used", "fresh_at_ms"),
    [
        ({"requests_per_minute": 60}, lambda room: room.end(NOTHING, 0), 1_000),
        ({"tokens_per_minute": 60_000}, lambda room: room.end(NOTHING, 0, tokens=500), 500),
        ({}, lambda room: (room.end(NOTHING, 0), room.pause(700, 0)), 700),
    ],
    ids=["requests", "tokens", "pause"],
)
def test_a_room_is_fresh_again_when_nothing_would_be_forgotten_with_it(
    limits: Any, used: Any, fresh_at_ms: float
) -> None:
    one = room(**limits)
    assert one.is_fresh(0)
    assert one.begin(0) is None
    assert not one.is_fresh(0)
    used(one)
    assert not one.is_fresh(fresh_at_ms - 1)
    assert one.is_fresh(fresh_at_ms)


def test_a_pause_that_the_server_asked_for_holds_for_everybody() -> None:
    free = room()
    free.pause(500, 100)
    free.pause(10, 100)
    assert free.begin(100) == Later(600)
    assert free.begin(600) is None


@given(
    st.integers(1, 500),
    st.lists(st.floats(0, 5_000, allow_nan=False), max_size=200),
)
def test_no_minute_sees_more_than_its_worth_and_what_has_filled_up(
    rate: int, pauses: Sequence[float]
) -> None:
    limited, now, begun = room(requests_per_minute=rate), 0.0, 0
    for pause in pauses:
        now += pause
        begun += limited.begin(now) is None
        assert begun <= rate + now * rate / MINUTE_MS + 1e-6


@given(st.lists(st.sampled_from([WELL, FAILED, NOTHING]), max_size=60), st.integers(1, 5))
def test_as_many_have_ended_as_have_begun(outcomes: Sequence[Outcome], most: int) -> None:
    limited = room(concurrency=most, breaker=BreakerLimits(failures=3, cooldown_ms=10))
    now = 0.0
    for outcome in outcomes:
        now += 11
        if limited.begin(now) is None:
            limited.end(outcome, now)
    assert limited.under_way == 0


@pytest.mark.parametrize(
    ("outcomes", "state", "failures"),
    [
        ([], Circuit.CLOSED, 0),
        ([FAILED, FAILED], Circuit.CLOSED, 2),
        ([FAILED, FAILED, WELL], Circuit.CLOSED, 0),
        ([FAILED, NOTHING, FAILED], Circuit.CLOSED, 2),
        ([FAILED, FAILED, FAILED], Circuit.OPEN, 3),
        ([FAILED, WELL, FAILED, FAILED], Circuit.CLOSED, 2),
    ],
)
def test_failures_in_a_row_open_the_circuit(
    outcomes: Sequence[Outcome], state: Circuit, failures: int
) -> None:
    breaker = Breaker(BreakerLimits(failures=3, cooldown_ms=100))
    for outcome in outcomes:
        assert breaker.refusal(0) is None
        breaker.begin()
        breaker.end(outcome, 0)
    assert (breaker.state, breaker.failures) == (state, failures)


@pytest.mark.parametrize(
    ("shown", "after", "refusal"),
    [
        (WELL, Circuit.CLOSED, None),
        (FAILED, Circuit.OPEN, Broken(100)),
        (NOTHING, Circuit.OPEN, None),
    ],
)
def test_when_it_has_cooled_down_one_attempt_shows_whether_it_is_back(
    shown: Outcome, after: Circuit, refusal: Broken | None
) -> None:
    breaker = Breaker(BreakerLimits(failures=1, cooldown_ms=100))
    breaker.begin()
    breaker.end(FAILED, 0)
    assert breaker.refusal(60) == Broken(40)
    assert breaker.refusal(100) is None
    breaker.begin()
    assert breaker.refusal(100) == Broken(0)
    breaker.end(shown, 100)
    assert (breaker.state, breaker.refusal(100)) == (after, refusal)


def test_those_that_began_before_do_not_keep_it_open_for_longer() -> None:
    breaker = Breaker(BreakerLimits(failures=1, cooldown_ms=100))
    for _ in range(3):
        breaker.begin()
    breaker.end(FAILED, 0)
    breaker.end(FAILED, 90)
    assert breaker.refusal(100) is None


def test_an_answer_that_begins_closes_the_circuit_and_a_failure_opens_it_again() -> None:
    limits = BreakerLimits(failures=3, cooldown_ms=1_000)
    breaker = Breaker(limits)
    for _ in range(3):
        breaker.begin()
        breaker.end(FAILED, 0)
    breaker.begin()
    breaker.answer()
    assert (breaker.state, breaker.refusal(2_000)) == (Circuit.CLOSED, None)
    breaker.end(FAILED, 2_000)
    assert breaker.refusal(2_000) == Broken(1_000)
    breaker.answer()  # one from before the circuit opened says nothing
    assert breaker.state is Circuit.OPEN
