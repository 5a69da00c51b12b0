"""How long the event loop was held: work counts, waiting and the collection of garbage do not."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

import pytest

from tests.support.holding import EVERY_S, watched

pytestmark = pytest.mark.anyio

LONG_S = 0.2


def work() -> None:
    end = time.thread_time() + LONG_S
    while time.thread_time() < end:
        pass


def wait() -> None:
    time.sleep(LONG_S)


def collect() -> None:
    """Collections that take as long."""
    heap: list[list[int]] = [[] for _ in range(300_000)]
    end = time.thread_time() + LONG_S
    while time.thread_time() < end:
        gc.collect()
    assert heap


async def held_by(step: Callable[[], None]) -> float:
    with watched() as held:
        await asyncio.sleep(2 * EVERY_S)
        step()
        await asyncio.sleep(2 * EVERY_S)
    return held.longest_s


async def test_what_counts() -> None:
    gc.collect()
    assert await held_by(work) >= LONG_S
    assert await held_by(wait) < LONG_S / 2
    assert await held_by(collect) < LONG_S / 2
    assert not [one for one in gc.callbacks if getattr(one, "__name__", "") == "collects"]


async def test_turns_are_not_added_up() -> None:
    with watched() as held:
        for _ in range(10):
            end = time.thread_time() + LONG_S / 10
            while time.thread_time() < end:
                pass
            await asyncio.sleep(2 * EVERY_S)
    assert held.longest_s < LONG_S
