"""Runs in Postgres that belong to no branch: nothing is in their way, and all else holds for them too."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from app.core.errors import KeyReused, NotFound
from app.core.events.run import RunCancelled
from app.ports.storage import Accepted, NewRun, Replayed
from app.services.entries import entry_of
from tests.adapters.db.test_run_store import NOW, OTHER, PROJECT, World, world
from tests.support.ambient import NOW_MS

pytestmark = pytest.mark.anyio

__all__ = ["world"]


def alone(world: World, **more: Any) -> NewRun:
    """A run without a branch."""
    new = world.run(world.ids.new(), **more)
    new.run.branch_id, new.run.kind = None, "consensus"
    return new


async def test_any_number_of_them_run_at_once_beside_runs_of_branches(world: World) -> None:
    branch_id = await world.branch()
    news = [alone(world) for _ in range(20)] + [world.run(branch_id) for _ in range(3)]
    outcomes = await asyncio.gather(*(world.store.accept(new) for new in news))
    assert outcomes[:20] == [Accepted(running=True)] * 20
    assert sorted(isinstance(o, Accepted) and o.running for o in outcomes[20:]) == [False, False, True]
    for new in news[:20]:
        stored = await world.store.run(PROJECT, new.run.id)
        assert (stored.status, stored.epoch, stored.branch_id) == ("running", 1, None)
        assert list(await world.store.page(new.run.id, after=0, limit=10)) == list(new.entries)


async def test_an_idempotency_key_counts_for_them(world: World) -> None:
    first = alone(world, idempotency=("scope", "key", b"1"))
    assert await world.store.accept(first) == Accepted(running=True)
    again = alone(world, idempotency=("scope", "key", b"1"))
    assert await world.store.accept(again) == Replayed(first.run.id)
    with pytest.raises(KeyReused):
        await world.store.accept(alone(world, idempotency=("scope", "key", b"2")))


async def test_they_end_and_hand_nothing_over(world: World) -> None:
    new, queued = alone(world), world.run(await world.branch())
    await world.store.accept(new)
    await world.store.accept(queued)
    result = await world.store.flush([world.end(new)])
    assert (list(result.lost), dict(result.rejected), list(result.started)) == ([], {}, [])
    stored = await world.store.run(PROJECT, new.run.id)
    assert (stored.status, stored.last_seq) == ("completed", 2)


async def test_another_process_takes_over_those_that_nobody_holds(world: World) -> None:
    brief = world.another(lease_ms=0)
    new = alone(world)
    await brief.accept(new)
    (orphan,) = (await world.store.claim(10)).orphans
    assert (orphan.id, orphan.branch_id, orphan.epoch, orphan.last_seq) == (new.run.id, None, 2, 1)
    assert list((await world.store.flush([world.end(new)])).lost) == [new.run.id]
    end = replace(world.end(new), epoch=2)
    assert list((await world.store.flush([end])).lost) == []
    await brief.close()


async def test_a_cancellation_is_kept_for_whoever_holds_the_run(world: World) -> None:
    new = alone(world)
    await world.store.accept(new)
    event = entry_of(RunCancelled("cancelled", usage=None, error=None), 0, NOW_MS)
    with pytest.raises(NotFound):
        await world.store.request_cancel(OTHER, new.run.id, at=NOW, cancelled=event)
    run = await world.store.request_cancel(PROJECT, new.run.id, at=datetime.now(UTC), cancelled=event)
    assert not run.ended
    cancelled, lost = await world.store.renew({new.run.id: 1})
    assert (list(cancelled), list(lost)) == ([new.run.id], [])


async def test_in_place_of_a_branch_only_the_project_says_anything(world: World) -> None:
    assert (await world.store.no_branch_state(PROJECT)).project_lifecycle is None
    await world.connection.execute(
        """UPDATE projects SET lifecycle = '{"retry": null}' WHERE id = $1""", PROJECT
    )
    state = await world.store.no_branch_state(PROJECT)
    assert (state.id, state.history.said, state.lifecycle, state.project_lifecycle) == (
        None,
        (),
        None,
        {"retry": None},
    )
    assert (await world.store.no_branch_state(OTHER)).project_lifecycle is None
