"""Keeping an embedded part alive, with functions that play the part."""

from __future__ import annotations

import asyncio

import pytest

from app.adapters.embedded.errors import LocalModelFailed
from app.adapters.embedded.supervise import keep_alive

pytestmark = pytest.mark.anyio


async def test_what_is_not_ready_is_revived_once_and_reported() -> None:
    states, reports = iter([True, False, True]), list[str]()
    revivals: list[int] = []
    over = asyncio.Event()

    def is_ready() -> bool:
        try:
            return next(states)
        except StopIteration:
            loop.call_soon_threadsafe(over.set)
            return True

    async def revive() -> None:
        revivals.append(len(reports))

    loop = asyncio.get_running_loop()
    task = asyncio.create_task(keep_alive(is_ready, revive, reports.append, interval_s=0))
    await over.wait()
    task.cancel()
    assert revivals == [0]
    assert len(reports) == 1


async def test_a_failure_to_revive_is_reported_and_tried_again() -> None:
    reports: list[str] = []
    revived = asyncio.Event()

    async def revive() -> None:
        if not reports:
            raise LocalModelFailed("no memory")
        revived.set()

    task = asyncio.create_task(keep_alive(lambda: False, revive, reports.append, interval_s=0.001))
    await revived.wait()
    task.cancel()
    assert reports[0] == "no memory"
