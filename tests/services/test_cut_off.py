"""Work that is cut off: by a stop, by its limit, and with its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.core.action.verdict import Cancelled, Failed
from app.services.cut_off import unless_cut_off
from app.services.execution import Stop

pytestmark = pytest.mark.anyio

NEVER_S = 3600.0


class Work:
    """Waits for ever, and does something of its own when it is told not to."""

    def __init__(self, when_cancelled: Callable[[], Any]) -> None:
        self.waits = asyncio.Event()
        self.told = 0
        self._when_cancelled = when_cancelled

    async def __call__(self) -> Any:
        self.waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told += 1
            return self._when_cancelled()


def obey() -> Any:
    raise asyncio.CancelledError


def fail() -> Any:
    raise ValueError("not now")


def go_on() -> Any:
    return "done all the same"


REACTIONS = pytest.mark.parametrize("reaction", [obey, fail, go_on])


async def at_once() -> str:
    return "done"


async def wrong() -> str:
    raise KeyError("k")


async def test_what_ends_by_itself_is_given_and_raised() -> None:
    stop = Stop()
    assert await unless_cut_off(at_once(), stop, NEVER_S) == "done"
    with pytest.raises(KeyError):
        await unless_cut_off(wrong(), stop)


@REACTIONS
async def test_a_stop_cuts_off(reaction: Callable[[], Any]) -> None:
    stop, work = Stop(), Work(reaction)
    running = asyncio.create_task(unless_cut_off(work(), stop, NEVER_S))
    await work.waits.wait()
    stop.request("user")
    assert await running == Cancelled()
    assert work.told == 1


@REACTIONS
async def test_the_limit_cuts_off(reaction: Callable[[], Any]) -> None:
    work = Work(reaction)
    ended = await unless_cut_off(work(), Stop(), 0.001)
    assert isinstance(ended, Failed)
    assert ended.type == "TIMEOUT"
    assert work.told == 1


@REACTIONS
async def test_it_is_cut_off_with_its_caller_who_goes_on(reaction: Callable[[], Any]) -> None:
    work = Work(reaction)

    async def caller() -> Any:
        return await unless_cut_off(work(), Stop()), "and more"

    running = asyncio.create_task(caller())
    await work.waits.wait()
    running.cancel()
    assert await running == (Cancelled(), "and more")
    assert work.told == 1


async def test_after_a_stop_nothing_is_begun() -> None:
    stop, work = Stop(), Work(obey)
    stop.request("shutdown")
    assert await unless_cut_off(work(), stop) == Cancelled()
    assert not work.waits.is_set()


async def test_what_is_over_is_not_cut_off_by_a_stop_of_the_same_moment() -> None:
    stop = Stop()

    async def last_word() -> str:
        stop.request("user")
        return "done"

    assert await unless_cut_off(last_word(), stop) == "done"


async def test_each_of_many_is_cut_off_by_one_stop() -> None:
    stop = Stop()
    works = [Work(obey) for _ in range(100)]
    running: list[Awaitable[Any]] = [asyncio.create_task(unless_cut_off(work(), stop)) for work in works]
    for work in works:
        await work.waits.wait()
    stop.request("user")
    assert await asyncio.gather(*running) == [Cancelled()] * 100
