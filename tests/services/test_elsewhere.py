"""Who follows what elsewhere: announcements, hints at commits, and the look that repairs what is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import pytest

from app.ports.hints import Topic
from app.ports.storage import RunRecord
from app.services import elsewhere
from app.services.background import background
from app.services.elsewhere import FORGET_MS, Elsewhere
from app.services.feed import Feeds
from tests.support.ambient import FakeClock
from tests.support.polling import until

pytestmark = pytest.mark.anyio

RUN, OTHER = UUID(int=1), UUID(int=2)


@dataclass
class Told:
    """Hints that go nowhere."""

    deaf: bool = False
    told: list[tuple[Topic, list[UUID]]] = field(default_factory=list)

    def tell(self, topic: Topic, runs: Iterable[UUID] = ()) -> None:
        """See the port."""
        self.told.append((topic, list(runs)))


@dataclass
class Stands:
    """Runs that stand where a test says."""

    at: dict[UUID, tuple[int, str]] = field(default_factory=dict)

    async def standings(self, runs: Sequence[UUID]) -> Mapping[UUID, tuple[int, str]]:
        """See the port."""
        return {run: self.at[run] for run in runs if run in self.at}


@dataclass
class Stage:
    """An `Elsewhere` and all that it deals with."""

    hints: Told = field(default_factory=Told)
    stands: Stands = field(default_factory=Stands)
    feeds: Feeds = field(default_factory=Feeds)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.elsewhere = Elsewhere(self.stands, self.hints, self.feeds, self.clock)

    def commits(self, *, status: str = "running", ended: bool = False) -> None:
        """Something of the run is committed here."""
        run = RunRecord(RUN, RUN, RUN, "act", status, "{}", datetime.now(UTC))
        self.elsewhere.committed(run, (), ended)


async def test_the_first_who_follows_announces_it() -> None:
    stage = Stage()
    watching = stage.elsewhere.watching
    with watching(RUN), watching(RUN), watching(RUN, ends_only=True):
        assert stage.hints.told == [(Topic.FOLLOW, [RUN]), (Topic.AWAIT, [RUN])]
    with stage.elsewhere.watching(RUN):
        assert stage.hints.told[2:] == [(Topic.FOLLOW, [RUN])]


async def test_nothing_is_told_of_a_run_that_nobody_follows() -> None:
    stage = Stage()
    stage.elsewhere.heard(Topic.FOLLOW, [OTHER])
    stage.commits()
    stage.commits(ended=True)
    assert stage.hints.told == []


async def test_commits_of_a_followed_run_are_told_until_the_announcement_is_old() -> None:
    stage = Stage()
    stage.elsewhere.heard(Topic.FOLLOW, [RUN])
    stage.commits()
    stage.commits(status="waiting")
    stage.commits(ended=True)
    assert stage.hints.told == [(Topic.NEWS, [RUN]), (Topic.END, [RUN]), (Topic.END, [RUN])]
    stage.clock.now_ms += FORGET_MS + 1
    async with background(stage.elsewhere.work()):
        stage.elsewhere.missed()
        await until(lambda: not stage.elsewhere._announced)
    stage.commits()
    assert len(stage.hints.told) == 3


async def test_of_a_run_whose_end_is_awaited_only_that_is_told() -> None:
    stage = Stage()
    stage.elsewhere.heard(Topic.AWAIT, [RUN])
    stage.commits()
    stage.commits(ended=True)
    assert stage.hints.told == [(Topic.END, [RUN])]


async def test_a_follower_elsewhere_counts_as_a_watcher() -> None:
    """Whether the run is executed when it is announced, or only later; and no longer than it is announced."""
    stage = Stage()
    feed = stage.feeds.open(RUN, 0)
    for _ in range(3):
        stage.elsewhere.heard(Topic.FOLLOW, [RUN, OTHER])
    later = stage.feeds.open(OTHER, 0)
    assert (feed.watchers, later.watchers) == (1, 1)
    # What was committed before it was heard of is told at once.
    assert stage.hints.told == [(Topic.NEWS, [RUN])]
    stage.clock.now_ms += FORGET_MS + 1
    async with background(stage.elsewhere.work()):
        stage.elsewhere.missed()
        await until(lambda: (feed.watchers, later.watchers) == (0, 0))


async def test_hints_wake_those_whom_they_concern() -> None:
    stage = Stage()
    with (
        stage.elsewhere.watching(RUN) as follower,
        stage.elsewhere.watching(RUN, ends_only=True) as waiter,
        stage.elsewhere.watching(OTHER) as stranger,
    ):
        stage.elsewhere.heard(Topic.NEWS, [RUN])
        assert [await watch.news(0.001) for watch in (follower, waiter, stranger)] == [True, False, False]
        follower.look(1)
        stage.elsewhere.heard(Topic.END, [RUN])
        assert [await watch.news(0.001) for watch in (follower, waiter, stranger)] == [True, True, False]


async def test_a_run_that_comes_to_be_executed_here_wakes_its_followers() -> None:
    stage = Stage()
    with stage.elsewhere.watching(RUN) as watch:
        stage.feeds.open(RUN, 0)
        assert await watch.news(0.001)


async def test_what_no_hint_tells_is_seen_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "LOOK_S", 0.005)
    stage = Stage()
    stage.stands.at = {RUN: (5, "running"), OTHER: (5, "waiting")}
    with (
        stage.elsewhere.watching(RUN) as behind,
        stage.elsewhere.watching(RUN) as level,
        stage.elsewhere.watching(RUN, ends_only=True) as waiter,
        stage.elsewhere.watching(OTHER, ends_only=True) as over,
        stage.elsewhere.watching(UUID(int=3)) as gone,
    ):
        level.look(5)
        behind.look(4)
        async with background(stage.elsewhere.work()):
            await asyncio.gather(*(watch.news(5) for watch in (behind, over, gone)))
            assert not await level.news(0.05)
            assert not await waiter.news(0)
