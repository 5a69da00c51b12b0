"""When silence has lasted too long."""

from __future__ import annotations

import pytest

from app.core.lifecycle.limits import Limit, Limits
from app.core.lifecycle.options import NO_TIMEOUTS, TimeoutOptions

OPTIONS = TimeoutOptions(initial_ms=500, inter_ms=200, total_ms=None, alive_ms=1_000)


def reading(options: TimeoutOptions = OPTIONS, asked_ms: float = 0) -> Limits:
    """Limits of a session whose model was asked."""
    limits = Limits(options)
    limits.begin(asked_ms)
    limits.ask(asked_ms)
    return limits


def test_the_initial_limit_counts_from_the_asking() -> None:
    limits = reading(asked_ms=100)
    assert limits.deadline_ms == 600
    assert limits.struck(599.9) is None
    assert limits.struck(600) is Limit.INITIAL


@pytest.mark.parametrize(
    ("keep_alives", "deadline"),
    [([150], 650), ([150, 300, 450], 950), ([400, 800], 1_000), ([900, 1_500], 1_000)],
    ids=["one", "several", "not beyond the cap", "none after the cap"],
)
def test_keep_alives_put_the_initial_limit_off_up_to_a_cap(keep_alives: list[float], deadline: float) -> None:
    limits = reading()
    for at in keep_alives:
        limits.alive(at)
    assert limits.deadline_ms == deadline
    assert limits.struck(deadline) is Limit.INITIAL


def test_the_life_of_one_attempt_does_not_count_for_the_next() -> None:
    limits = reading()
    limits.alive(400)
    limits.pause(450)
    limits.ask(1_000)
    assert limits.deadline_ms == 1_500


def test_progress_begins_the_limit_between_tokens() -> None:
    limits = reading()
    limits.progress_ms = 300
    assert limits.deadline_ms == 500
    assert limits.struck(500) is Limit.INTER


@pytest.mark.parametrize(
    ("keep_alives", "deadline"),
    [([150], 350), ([150, 300, 450], 650), ([900], 1_000), ([900, 1_500], 1_000)],
    ids=["one", "several", "not beyond the cap", "none after the cap"],
)
def test_keep_alives_count_as_life_up_to_a_cap(keep_alives: list[float], deadline: float) -> None:
    limits = reading()
    limits.progress_ms = 0
    for at in keep_alives:
        limits.alive(at)
    assert limits.deadline_ms == deadline


def test_a_cap_below_the_limit_between_tokens_never_shortens_it() -> None:
    limits = reading(TimeoutOptions(initial_ms=500, inter_ms=200, alive_ms=50))
    limits.progress_ms = 0
    limits.alive(10)
    assert limits.deadline_ms == 200


def test_time_in_which_we_did_not_read_does_not_count() -> None:
    limits = reading()
    limits.hold(300, now_ms=300)
    assert limits.deadline_ms == 800
    limits.progress_ms = 400
    limits.hold(1_000, now_ms=1_500)
    assert limits.deadline_ms == 1_600


def test_a_hold_moves_the_last_keep_alive_too() -> None:
    limits = reading()
    limits.progress_ms = 0
    limits.alive(150)
    limits.hold(100, now_ms=260)
    assert limits.deadline_ms == 450


def test_a_hold_never_gives_more_than_a_fresh_limit() -> None:
    limits = reading()
    limits.progress_ms = 900
    limits.hold(1_000, now_ms=1_000)
    assert limits.deadline_ms == 1_200


def test_a_pause_is_the_only_limit_while_it_lasts() -> None:
    limits = reading()
    limits.pause(5_000)
    assert limits.deadline_ms == 5_000
    assert limits.struck(4_999) is None
    assert limits.struck(5_000) is Limit.PAUSE
    limits.ask(5_000)
    assert limits.deadline_ms == 5_500


def test_the_deadline_beats_every_other_limit_and_lasts_through_pauses() -> None:
    limits = reading(TimeoutOptions(initial_ms=500, inter_ms=200, total_ms=500))
    assert limits.struck(500) is Limit.TOTAL
    limits.pause(900)
    assert limits.deadline_ms == 500
    limits.end()
    assert limits.deadline_ms is None


def test_without_limits_nothing_is_waited_for() -> None:
    limits = reading(NO_TIMEOUTS)
    assert limits.deadline_ms is None
    limits.progress_ms = 0
    assert limits.deadline_ms is None
    assert limits.struck(10**9) is None
