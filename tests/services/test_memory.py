"""What is remembered, for how long, and how often it is searched for."""

from __future__ import annotations

import asyncio

import pytest

from app.services.memory import Memory
from tests.support.ambient import FakeClock

pytestmark = pytest.mark.anyio


class Source:
    """Counts its searches and lets a test say when they end."""

    def __init__(self) -> None:
        self.searches = 0
        self.answer: str | Exception | None = "first"
        self.open = asyncio.Event()

    async def search(self) -> str | None:
        """One search; what it gives is what was true when it began."""
        self.searches += 1
        answer = self.answer
        await self.open.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


def memory(clock: FakeClock, most: int = 10) -> Memory[str, str | None]:
    return Memory(clock, 1000, most=most)


async def turns() -> None:
    """Let everything go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("answer", ["found", None])
async def test_a_value_is_searched_for_once_until_its_time_is_over(answer: str | None) -> None:
    clock, source = FakeClock(), Source()
    known = memory(clock)
    source.answer = answer
    source.open.set()
    for later_ms, searches in ((0, 1), (999, 1), (1, 2)):
        clock.now_ms += later_ms
        assert await known.find("key", source.search) == answer
        assert source.searches == searches


async def test_those_who_ask_at_once_share_one_search() -> None:
    known, source = memory(FakeClock()), Source()
    asking = [asyncio.create_task(known.find("key", source.search)) for _ in range(5)]
    await turns()
    asking[0].cancel()
    await turns()
    source.open.set()
    assert await asyncio.gather(*asking[1:]) == ["first"] * 4
    assert source.searches == 1


async def test_a_failure_is_told_to_all_and_not_remembered() -> None:
    known, source = memory(FakeClock()), Source()
    source.answer = LookupError("away")
    asking = [asyncio.create_task(known.find("key", source.search)) for _ in range(2)]
    await turns()
    source.open.set()
    assert [type(one) for one in await asyncio.gather(*asking, return_exceptions=True)] == [LookupError] * 2
    source.answer = "back"
    assert await known.find("key", source.search) == "back"
    assert source.searches == 2


async def test_what_was_read_before_a_change_is_not_remembered_after_it() -> None:
    known, source = memory(FakeClock()), Source()
    before = asyncio.create_task(known.find("key", source.search))
    await turns()
    source.answer = "second"
    known.forget_all()
    after = asyncio.create_task(known.find("key", source.search))
    await turns()
    source.open.set()
    assert (await before, await after) == ("first", "second")
    assert await known.find("key", source.search) == "second"
    assert source.searches == 2


async def test_the_oldest_gives_way() -> None:
    known, source = memory(FakeClock(), most=2), Source()
    source.open.set()
    for key in ("a", "b", "c", "c", "b"):
        await known.find(key, source.search)
    assert source.searches == 3
    await known.find("a", source.search)
    assert source.searches == 4
