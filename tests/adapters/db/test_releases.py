"""Leases that are renewed in time, and given up in good order: the next claim knows why."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from app.core.events.run import RunCancelled, RunStarted
from app.services.entries import entry_of
from tests.adapters.db.test_run_store import NOW, PROJECT, World, world
from tests.support.ambient import NOW_MS
from tests.support.polling import until_true

pytestmark = pytest.mark.anyio

__all__ = ["world"]

_WAITERS = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"


async def test_what_is_released_is_claimed_at_once_and_told_apart_from_what_was_lost(world: World) -> None:
    left, lost, kept = [world.run(await world.branch()) for _ in range(3)]
    brief = world.another(lease_ms=0)
    await world.store.accept(left)
    await brief.accept(lost)
    await world.store.accept(kept)
    assert not (await world.store.claim(0)).orphans
    await world.store.release({left.run.id: 1})
    claimed = await brief.claim(10)
    assert [(run.id, run.epoch, run.last_seq) for run in claimed.given_up] == [(left.run.id, 2, 1)]
    assert [run.id for run in claimed.orphans] == [lost.run.id]
    await brief.close()


async def test_who_has_released_a_run_may_write_until_it_is_claimed(world: World) -> None:
    new = world.run(await world.branch())
    await world.store.accept(new)
    await world.store.release({new.run.id: 1})
    flush = world.flush(new, entry_of(RunStarted(), 2, NOW_MS))
    assert not (await world.store.flush([flush])).lost
    (run,) = (await world.store.claim(10)).given_up
    assert run.last_seq == 2
    late = replace(flush, entries=[entry_of(RunStarted(), 3, NOW_MS)])
    assert list((await world.store.flush([late])).lost) == [new.run.id]


async def test_a_run_that_is_somebody_else_s_cannot_be_released(world: World) -> None:
    new = world.run(await world.branch())
    brief = world.another(lease_ms=0)
    await brief.accept(new)
    assert len((await world.store.claim(10)).orphans) == 1
    await brief.release({new.run.id: 1})
    claimed = await world.store.claim(10)
    assert not claimed.given_up
    assert not claimed.orphans
    await brief.close()


async def test_a_lease_is_renewed_before_what_a_client_waits_for(world: World) -> None:
    held, wanted = [world.run(await world.branch()) for _ in range(2)]
    for new in (held, wanted):
        await world.store.accept(new)
    event = entry_of(RunCancelled("cancelled", usage=None, error=None), 0, NOW_MS)
    async with asyncio.timeout(20), world.connection.transaction():
        await world.connection.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", wanted.run.id)
        cancel = asyncio.create_task(
            world.store.request_cancel(PROJECT, wanted.run.id, at=NOW, cancelled=event)
        )
        await until_true(lambda: world.connection.fetchval(_WAITERS))
        assert await world.store.renew({held.run.id: 1}) == ([], [])
        assert not cancel.done()
    await cancel


@pytest.mark.parametrize("how", ["released", "given back"])
async def test_a_run_that_has_ended_stays_as_it_is(world: World, how: str) -> None:
    new = world.run(await world.branch())
    await world.store.accept(new)
    await world.store.flush([world.end(new)])
    if how == "released":
        await world.store.release({new.run.id: 1})
    else:
        await world.store.give_back([replace(new.run, epoch=1)])
    claimed = await world.store.claim(10)
    assert not claimed.given_up
    assert not claimed.orphans
    assert not claimed.started
