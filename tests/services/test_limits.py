"""What a process lets in, and what it asks the others for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from app.core.errors import Unavailable
from app.core.limits.quota import Owner, Quota, QuotaLimits
from app.core.limits.refusal import RequestLimitReached
from app.core.limits.share import Grant
from app.services.limits import Limits, Meter
from tests.support.ambient import FakeClock
from tests.support.polling import until

pytestmark = pytest.mark.anyio

KEY, PROJECT = UUID(int=1), UUID(int=2)
MINUTE = 30_000


class Book:
    """The requests of one minute, in memory; `open` says when an answer comes."""

    def __init__(self, **quotas: int) -> None:
        self.left = {KEY: quotas.get("key", 0), PROJECT: quotas.get("project", 0)}
        self.quotas = dict(self.left)
        self.asked: list[tuple[UUID, int]] = []
        self.returned: list[dict[UUID, tuple[int, int]]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None

    async def take(self, quota_id: UUID, wanted: int) -> Grant | None:
        """See the port."""
        self.asked.append((quota_id, wanted))
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        if quota_id not in self.left:
            return None
        granted = min(wanted, self.left[quota_id])
        self.left[quota_id] -= granted
        quota = self.quotas[quota_id]
        return Grant(7, quota, granted, quota - self.left[quota_id], MINUTE)

    async def give_back(self, unused: Mapping[UUID, tuple[int, int]]) -> None:
        """See the port."""
        self.returned.append(dict(unused))


class Stage:
    """A meter over a book."""

    def __init__(self, **quotas: int) -> None:
        self.book = Book(**quotas)
        self.clock = FakeClock()
        self.meter = Meter(self.book, self.clock)
        limits = {name: QuotaLimits(requests_per_minute=quota) for name, quota in quotas.items()}
        owners = {"key": (KEY, Owner.KEY), "project": (PROJECT, Owner.PROJECT)}
        self.quotas = [Quota(*owners[name], limits[name]) for name in quotas]

    async def request(self) -> bool:
        """Whether a request is let in."""
        try:
            await self.meter.admit(self.quotas)
        except RequestLimitReached:
            return False
        return True


async def test_requests_that_come_at_once_ask_together() -> None:
    stage = Stage(key=40)
    stage.book.open.clear()
    requests = [asyncio.create_task(stage.request()) for _ in range(10)]
    await until(lambda: stage.book.asked)
    stage.book.open.set()
    assert await asyncio.gather(*requests) == [True] * 10
    assert stage.book.asked == [(KEY, 10)]


async def test_after_the_last_one_requests_are_refused_without_asking_each_time() -> None:
    stage = Stage(key=3)
    assert [await stage.request() for _ in range(8)] == [True] * 3 + [False] * 5
    assert len(stage.book.asked) == 4
    stage.clock.now_ms += 1_000
    assert not await stage.request()
    assert len(stage.book.asked) == 5


async def test_what_the_project_refuses_is_not_taken_from_the_key() -> None:
    stage = Stage(key=5, project=2)
    assert [await stage.request() for _ in range(6)] == [True] * 2 + [False] * 4
    stage.quotas.pop()
    assert [await stage.request() for _ in range(4)] == [True] * 3 + [False]


async def test_a_request_that_is_called_off_takes_nothing_from_those_who_wait_with_it() -> None:
    stage = Stage(key=1)
    stage.book.open.clear()
    first, second = (asyncio.create_task(stage.request()) for _ in range(2))
    await until(lambda: stage.book.asked)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    stage.book.open.set()
    assert await second
    assert not await stage.request()


async def test_while_the_database_is_away_requests_are_told_so_and_then_let_in_again() -> None:
    stage = Stage(key=1)
    stage.book.failure = Unavailable("away")
    with pytest.raises(Unavailable):
        await stage.request()
    stage.book.failure = None
    assert await stage.request()


async def test_a_limit_that_is_gone_refuses_nobody() -> None:
    stage = Stage(key=1)
    del stage.book.left[KEY]
    assert [await stage.request() for _ in range(3)] == [True] * 3


async def test_unused_shares_are_given_back_and_old_minutes_forgotten() -> None:
    stage = Stage(key=100)
    await stage.request()
    await stage.meter.tidy()
    assert stage.book.returned == []
    await stage.meter.tidy()
    assert stage.book.returned == [{KEY: (7, 4)}]
    stage.clock.now_ms += MINUTE
    await stage.meter.tidy()
    await stage.request()
    assert [wanted for _, wanted in stage.book.asked] == [5, 5]


class Answering:
    """What the database says about limits on usage."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[bool]] = []

    async def counts_usage(self) -> bool:
        """See the port."""
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]

    async def set(self, *_: Any, **__: Any) -> Any:
        """See the port."""


async def test_usage_is_counted_until_it_is_known_that_nobody_limits_it() -> None:
    quotas: Any = Answering()
    limits = Limits(quotas, Meter(Book(), FakeClock()), lambda: None)
    assert limits.counts_usage
    work = asyncio.create_task(limits.work())
    await until(lambda: quotas.asked)
    quotas.asked[0].set_result(False)
    await until(lambda: not limits.counts_usage)
    work.cancel()
