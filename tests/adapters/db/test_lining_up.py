"""Runs accepted by a process that executes none: they queue, and whoever looks for work takes them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from app.adapters.db.accept import MAX_QUEUED
from app.core.errors import BranchBusy, NotFound, PreconditionFailed, QueueFull
from app.ports.storage import Accepted, NewRun, Replayed
from tests.adapters.db.test_run_store import OTHER, PROJECT, World, world

pytestmark = pytest.mark.anyio

__all__ = ["world"]


async def queued(world: World, **more: Any) -> NewRun:
    """A run for a free branch that is not to start."""
    return world.run(more.pop("branch_id", None) or await world.branch(), starts=False, **more)


async def test_it_queues_where_nothing_is_in_its_way_and_another_takes_it(world: World) -> None:
    new = await queued(world)
    single = await queued(world)
    single.run.branch_id = None
    assert await world.store.accept(new) == Accepted(running=False)
    assert await world.store.accept(single) == Accepted(running=False)
    for accepted in (new, single):
        stored = await world.store.run(PROJECT, accepted.run.id)
        assert (stored.status, stored.epoch, stored.last_seq) == ("queued", 0, 1)
        assert list(await world.store.page(stored.id, after=0, limit=10)) == list(accepted.queued)
    claimed = await world.another().claim(10)
    assert {run.id: run.last_seq for run in claimed.started} == {new.run.id: 1, single.run.id: 1}
    assert not (await world.store.claim(10)).started


async def test_of_many_who_look_each_gets_others_and_a_branch_has_one(world: World) -> None:
    branches = [await world.branch() for _ in range(20)]
    news = [await queued(world, branch_id=branches[number % 20]) for number in range(60)]
    news += [await queued(world) for _ in range(20)]
    for new in news[60:]:
        new.run.branch_id = None
    assert set(await asyncio.gather(*map(world.store.accept, news))) == {Accepted(running=False)}
    rivals = [world.another() for _ in range(4)]
    looks = [await asyncio.gather(*(rival.claim(7) for rival in rivals)) for _ in range(8)]
    taken = [run for look in looks for claimed in look for run in claimed.started]
    assert max(Counter(run.id for run in taken).values()) == 1
    assert {run.id for run in taken} == {new.run.id for new in (*news[:20], *news[60:])}
    for rival in rivals:
        await rival.close()


async def test_conditions_are_told_one_by_one_and_hinder_no_neighbour(world: World) -> None:
    fine, foreign, changed = await queued(world), await queued(world, project=OTHER), await queued(world)
    changed = replace(changed, if_match=7)
    outcomes = await asyncio.gather(
        *map(world.store.accept, (fine, foreign, changed)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [Accepted, NotFound, PreconditionFailed]
    fitting = replace(await queued(world), if_match=1)
    assert await world.store.accept(fitting) == Accepted(running=False)


async def test_a_busy_branch_can_be_refused(world: World) -> None:
    first = await queued(world, if_busy="reject")
    assert await world.store.accept(first) == Accepted(running=False)
    with pytest.raises(BranchBusy):
        await world.store.accept(await queued(world, branch_id=first.run.branch_id, if_busy="reject"))


async def test_a_key_counts_for_it(world: World) -> None:
    first = await queued(world, idempotency=("scope", "key", b"1"))
    assert await world.store.accept(first) == Accepted(running=False)
    again = await queued(world, idempotency=("scope", "key", b"1"))
    assert await world.store.accept(again) == Replayed(first.run.id)


async def test_a_queue_has_an_end(world: World) -> None:
    branch = await world.branch()
    first = await queued(world, branch_id=branch)
    await world.store.accept(first)
    await world.connection.execute(
        "INSERT INTO runs (id, project_id, branch_id, kind, status, request, created_at) "
        "SELECT gen_random_uuid(), project_id, branch_id, kind, status, request, created_at "
        "FROM runs, generate_series(2, $1) WHERE id = $2",
        MAX_QUEUED - 1,
        first.run.id,
    )
    assert await world.store.accept(await queued(world, branch_id=branch)) == Accepted(running=False)
    with pytest.raises(QueueFull):
        await world.store.accept(await queued(world, branch_id=branch))
    assert await world.store.accept(await queued(world)) == Accepted(running=False)
