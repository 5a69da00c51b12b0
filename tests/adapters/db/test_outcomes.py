"""What became of acceptances and of ends that nobody heard of: whose the runs are by now. Real database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from app.adapters.db.accept import outcome
from app.ports.storage import Accepted, NewRun
from tests.adapters.db.test_run_store import NOW, OWNER, World, world

pytestmark = pytest.mark.anyio

__all__ = ["world"]


async def became(world: World, news: Sequence[NewRun]) -> dict[UUID, Accepted]:
    """What is found, by the process that accepted them."""
    return await outcome(world.connection, news, owner=OWNER, lease=timedelta(seconds=60))


async def lapse(world: World, new: NewRun) -> None:
    """Let the lease be over."""
    await world.connection.execute(
        "UPDATE runs SET lease_until = now() - interval '1 s' WHERE id = $1", new.run.id
    )


def line_up(world: World, branch_id: UUID, **more: str) -> NewRun:
    """A run that may queue."""
    new = world.run(branch_id, **more)
    new.run.expires_at = NOW + timedelta(days=7)
    return new


async def test_one_that_was_started_is_begun_and_what_is_not_there_is_not_told(world: World) -> None:
    new, absent = world.run(await world.branch()), world.run(await world.branch())
    await world.store.accept(new)
    assert await became(world, [new, absent]) == {new.run.id: Accepted(running=True)}


async def test_a_lease_that_is_over_is_taken_anew(world: World) -> None:
    new = world.run(await world.branch())
    await world.store.accept(new)
    await lapse(world, new)
    assert await became(world, [new]) == {new.run.id: Accepted(running=True)}
    assert not (await world.store.claim(10, lost=True)).orphans


async def test_one_that_was_taken_over_is_not_begun(world: World) -> None:
    new = world.run(await world.branch())
    await world.store.accept(new)
    await lapse(world, new)
    assert [run.id for run in (await world.store.claim(10, lost=True)).orphans] == [new.run.id]
    assert await became(world, [new]) == {new.run.id: Accepted(running=False)}


async def test_one_that_queued_is_not_begun_even_where_it_was_handed_over_to_us(world: World) -> None:
    branch_id = await world.branch()
    first, new = world.run(branch_id), line_up(world, branch_id)
    await world.store.accept(first)
    assert await world.store.accept(new) == Accepted(running=False)
    assert await became(world, [new]) == {new.run.id: Accepted(running=False)}
    (begun,) = (await world.store.flush([world.end(first)])).started
    assert (begun.id, begun.epoch) == (new.run.id, 1)
    assert await became(world, [new]) == {new.run.id: Accepted(running=False)}


async def test_the_run_that_is_to_end_for_it_is_told(world: World) -> None:
    branch_id = await world.branch()
    first, new = world.run(branch_id), line_up(world, branch_id, if_busy="interrupt")
    await world.store.accept(first)
    accepted = await world.store.accept(new)
    assert accepted == Accepted(running=False, replaces=first.run.id)
    assert await became(world, [new]) == {new.run.id: accepted}


async def test_an_end_tells_the_run_that_it_began_and_none_that_was_accepted_since(world: World) -> None:
    """That one is begun by its acceptance, which may itself still have to look what became of it."""
    for queues in (True, False):
        branch_id = await world.branch()
        first, second = world.run(branch_id), line_up(world, branch_id)
        await world.store.accept(first)
        if queues:
            assert await world.store.accept(second) == Accepted(running=False)
        ending = world.end(first)
        await world.store.flush([ending])
        if not queues:
            assert await world.store.accept(second) == Accepted(running=True)
        written, started = await world.store.written([ending])
        assert list(written) == [first.run.id]
        assert [run.id for run in started] == ([second.run.id] if queues else [])
