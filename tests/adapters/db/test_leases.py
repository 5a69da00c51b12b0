"""Leases that are renewed in time, and given up in good order: the next claim knows why."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from app.core.events.run import RunCancelled, RunStarted
from app.ports.storage import RunRecord
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


async def test_a_writer_that_lost_its_lease_writes_nothing_more(world: World) -> None:
    new = world.run(await world.branch())
    short = world.another(lease_ms=0)
    await short.accept(new)
    claimed = await world.store.claim(10)
    assert [run.id for run in claimed.orphans] == [new.run.id]
    assert claimed.orphans[0].epoch == 2
    assert claimed.orphans[0].last_seq == 1
    late = entry_of(RunStarted(), 2, NOW_MS)
    result = await short.flush([world.flush(new, late)])
    assert list(result.lost) == [new.run.id]
    assert len(await world.store.page(new.run.id, after=0, limit=10)) == 1
    assert await short.renew({new.run.id: 1}) == ([], [new.run.id])
    await short.close()


async def test_a_claim_waits_for_the_flush_under_way_and_goes_on_from_its_last_event(world: World) -> None:
    new = world.run(await world.branch())
    short = world.another(lease_ms=0)
    await short.accept(new)
    for _ in range(20):
        run = await world.store.run(PROJECT, new.run.id)
        seq = len(await world.store.page(new.run.id, after=0, limit=100)) + 1
        event = entry_of(RunStarted(), seq, NOW_MS)
        written, claimed = await asyncio.gather(
            short.flush([world.flush(new, event, epoch=run.epoch)]), short_claim(world)
        )
        assert claimed.last_seq == (seq - 1 if written.lost else seq)
        await world.connection.execute("UPDATE runs SET lease_until = now() - interval '1 second'")
    await short.close()


async def short_claim(world: World) -> RunRecord:
    """Claim the one orphan there is, however long a rival holds it."""
    for _ in range(200):
        claimed = await world.store.claim(10)
        if claimed.orphans:
            return claimed.orphans[0]
    raise AssertionError("nothing to claim")


async def test_a_queued_run_whose_hand_over_was_lost_is_claimed(world: World) -> None:
    branch_id = await world.branch()
    first, second = world.run(branch_id), world.run(branch_id)
    await world.store.accept(first)
    await world.store.accept(second)
    await world.connection.execute(
        "UPDATE runs SET status = 'completed', ended_at = now() WHERE id = $1", first.run.id
    )
    claimed = await world.store.claim(10)
    assert [run.id for run in claimed.started] == [second.run.id]
    assert not claimed.orphans
    assert not (await world.store.claim(10)).started


async def test_a_run_that_is_given_back_is_taken_by_the_next(world: World) -> None:
    branch_id = await world.branch()
    first, second = world.run(branch_id), world.run(branch_id)
    await world.store.accept(first)
    await world.store.accept(second)
    result = await world.store.flush([world.end(first)])
    await world.store.give_back(result.started)
    assert (await world.store.run(PROJECT, second.run.id)).status == "queued"
    (again,) = (await world.store.claim(10)).started
    assert (again.id, again.epoch) == (second.run.id, 2)


async def test_a_stuck_run_is_claimed_by_one_process(world: World) -> None:
    rivals = [world.another() for _ in range(3)]
    for _ in range(40):
        branch_id = await world.branch()
        first, second = world.run(branch_id), world.run(branch_id)
        await world.store.accept(first)
        await world.store.accept(second)
        await world.connection.execute(
            "UPDATE runs SET status = 'completed', ended_at = now() WHERE id = $1", first.run.id
        )
        claims = await asyncio.gather(*(rival.claim(10) for rival in rivals))
        assert [run.id for claim in claims for run in claim.started] == [second.run.id]
        await world.connection.execute("UPDATE runs SET status = 'completed', ended_at = now()")
    for rival in rivals:
        await rival.close()
