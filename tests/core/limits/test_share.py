"""Shares of a minute's requests: whatever processes ask for, use, give back or lose, not too many get in."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.core.limits.share import AGAIN_MS, PART, Grant, Share, Spent

MINUTE_MS = 60_000.0


class Ledger:
    """What the processes were given, as the database keeps it."""

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self.minute = 0
        self.taken = 0

    def take(self, wanted: int, now_ms: float, most: int) -> Grant:
        """Give some of what is left, `most` at most."""
        minute = int(now_ms // MINUTE_MS)
        if minute > self.minute:
            self.minute, self.taken = minute, 0
        granted = max(min(wanted, self.quota - self.taken, most), 0)
        self.taken += granted
        return Grant(minute, self.quota, granted, self.taken, (minute + 1) * MINUTE_MS - now_ms)

    def give_back(self, minute: int, number: int) -> None:
        if minute == self.minute:
            self.taken -= number


class Processes(RuleBasedStateMachine):
    """Three processes, whose clocks go equally fast but show different times."""

    @initialize(quota=st.integers(1, 4), now_ms=st.sampled_from([0, 58_500, 59_500]))
    def begin(self, quota: int, now_ms: int) -> None:
        self.now_ms = float(now_ms)
        self.ledger = Ledger(quota)
        self.shares = [Share(quota) for _ in range(3)]
        self.admitted: dict[int, int] = {}

    def clock(self, of: int) -> float:
        return self.now_ms + of * 7_777_777

    @rule(
        of=st.integers(0, 2),
        number=st.integers(1, 4),
        most=st.integers(0, 4),
        takes_ms=st.sampled_from([0, 1, 700]),
    )
    def requests(self, of: int, number: int, most: int, takes_ms: int) -> None:
        for _ in range(number):
            self.request(of, most, takes_ms)

    def request(self, of: int, most: int, takes_ms: int) -> None:
        share = self.shares[of]
        asked_ms = self.clock(of)
        verdict = share.spend(asked_ms)
        if verdict is Spent.ASK:
            # The minute may end between the grant and its arrival.
            before_ms = takes_ms / 2
            self.now_ms += before_ms
            grant = self.ledger.take(share.wanted(), self.now_ms, most)
            self.now_ms += takes_ms - before_ms
            share.add(grant, asked_ms)
            verdict = share.spend(self.clock(of))
        if verdict is Spent.YES:
            minute = int(self.now_ms // MINUTE_MS)
            self.admitted[minute] = self.admitted.get(minute, 0) + 1

    @rule(of=st.integers(0, 2))
    def refused_elsewhere(self, of: int) -> None:
        share = self.shares[of]
        if share.spend(self.clock(of)) is Spent.YES:
            share.unspend()

    @rule(times=st.integers(1, 2))
    def tidy(self, times: int) -> None:
        for share in self.shares * times:
            if (rest := share.rest()) is not None:
                self.ledger.give_back(*rest)

    @rule(of=st.integers(0, 2))
    def killed(self, of: int) -> None:
        self.shares[of] = Share(self.ledger.quota)

    @rule(ms=st.sampled_from([1, 999, 1_000, 30_000, 59_000]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def never_too_many(self) -> None:
        for share in getattr(self, "shares", ()):
            assert share.used >= 0
        assert all(n <= self.ledger.quota for n in getattr(self, "admitted", {}).values())


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)


def grant(**more: Any) -> Grant:
    given = {"minute": 5, "quota": 100, "granted": 5, "taken": 5, "ends_in_ms": 10_000.0}
    return Grant(**{**given, **more})


def test_what_was_granted_is_let_in_without_asking_again() -> None:
    share = Share(100)
    assert share.spend(0) is Spent.ASK
    share.add(grant(), 0)
    assert [share.spend(1_000) for _ in range(6)] == [*[Spent.YES] * 5, Spent.ASK]


def test_nothing_is_let_in_after_the_minute_as_it_was_when_it_was_asked_for() -> None:
    share = Share(100)
    share.add(grant(), 500)
    assert share.spend(10_499) is Spent.YES
    assert share.spend(10_500) is Spent.ASK


def test_what_is_left_of_a_minute_is_nothing_in_the_next() -> None:
    share = Share(100)
    share.add(grant(), 0)
    assert share.spend(10_000) is Spent.ASK
    share.add(grant(minute=6, granted=1), 10_000)
    assert [share.spend(10_001) for _ in range(2)] == [Spent.YES, Spent.ASK]


def test_who_was_given_nothing_refuses_for_a_second_and_asks_again() -> None:
    share = Share(100)
    share.add(grant(granted=0, taken=100), 0)
    assert share.spend(AGAIN_MS - 1) is Spent.NO
    assert (share.used, share.resets_s(AGAIN_MS)) == (100, 9.0)
    assert share.spend(AGAIN_MS) is Spent.ASK
    share.add(grant(granted=1, taken=100), AGAIN_MS)
    assert share.spend(AGAIN_MS) is Spent.YES


def test_what_is_asked_for_is_a_part_of_the_minute_or_what_waits() -> None:
    share = Share(100)
    assert share.wanted() == 100 // PART
    share.waiting = 32
    assert share.wanted() == 32
    assert Share(3).wanted() == 1


def test_what_was_not_used_for_two_looks_is_given_back() -> None:
    share = Share(100)
    share.add(grant(), 0)
    share.spend(0)
    assert share.rest() is None
    share.spend(1)
    assert share.rest() is None
    assert share.rest() == (5, 3)
    assert share.rest() is None
    assert (share.spend(2), share.used) == (Spent.ASK, 2)


def test_what_others_hold_counts_as_used() -> None:
    share = Share(100)
    share.add(grant(taken=40), 0)
    assert share.used == 35
    share.spend(0)
    assert share.used == 36
