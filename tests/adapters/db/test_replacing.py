"""Runs that take the place of the active one: who follows whom, and what counts no more. Real races."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar
from uuid import UUID

import pytest

from app.adapters.db.accept import MAX_QUEUED_IN_PROJECT
from app.adapters.db.run_store import PostgresRuns
from app.core.errors import QueueFull
from app.ports.storage import Accepted, NewMessage, NewRun, Stale
from tests.adapters.db.test_run_store import NOW, PROJECT, World, world

pytestmark = pytest.mark.anyio

__all__ = ["world"]

T = TypeVar("T")


def says(world: World) -> NewMessage:
    return NewMessage(world.ids.new(), "instruction", "{}")


async def of_run(world: World, new: NewRun) -> Any:
    """Its row."""
    row = await world.connection.fetchrow("SELECT * FROM runs WHERE id = $1", new.run.id)
    assert row is not None
    return row


async def after_a_while(seconds: float, work: Awaitable[T]) -> T:
    await asyncio.sleep(seconds)
    return await work


async def shown(store: PostgresRuns, branch_id: UUID) -> list[UUID]:
    """The messages that count."""
    return [m.id for m in (await store.branch_state(PROJECT, branch_id)).history.said]


@pytest.mark.parametrize("how", ["interrupt", "rollback"])
async def test_an_end_and_what_would_replace_the_run_race_without_one_left_behind(
    world: World, how: str
) -> None:
    other = world.another()
    met: set[str] = set()
    for n in range(60):
        branch_id = await world.branch()
        first, behind, second = (world.run(branch_id, if_busy=how) for _ in range(3))
        behind.if_busy = "enqueue"
        assert await world.store.accept(first) == Accepted(running=True)
        assert await world.store.accept(behind) == Accepted(running=False)
        message = says(world)
        ending = world.end(first)
        ending.rows = [message]

        ended, outcome = await asyncio.gather(
            after_a_while(0.001 * (n % 10), world.store.flush([ending])), other.accept(second)
        )
        assert not ended.lost
        assert (await of_run(world, first))["status"] == "completed"
        if outcome == Stale():
            met.add("stale")
            continue
        assert isinstance(outcome, Accepted)
        replaced = outcome.replaces
        met.add("replaced" if replaced == first.run.id else "late")
        # It follows the run that it replaces; the other one has been asked to end if it was that one.
        row = await of_run(world, second if replaced == first.run.id else behind)
        assert (row["status"], row["replaces"]) == ("running", first.run.id if row["replaces"] else None)
        superseded = how == "rollback" and replaced == first.run.id
        assert await shown(world.store, branch_id) == ([] if superseded else [message.id])
    assert "replaced" in met
    await other.close()
    await world.store.close()
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await world.connection.fetchval(deadlocks) == 0


async def test_what_is_said_until_the_end_is_left_out_at_the_end(world: World) -> None:
    branch_id = await world.branch()
    first = world.run(branch_id)
    await world.store.accept(first)
    early, late = says(world), says(world)
    await world.store.flush([world.flush(first, rows=[early])])
    second = world.run(branch_id, if_busy="rollback")
    assert await world.store.accept(second) == Accepted(running=False, replaces=first.run.id)
    await world.store.flush([world.flush(first, rows=[late])])
    assert await shown(world.store, branch_id) == [early.id, late.id]
    ending = world.end(first, "cancelled")
    ending.rows = [says(world)]
    (started,) = (await world.store.flush([ending])).started
    assert started.id == second.run.id
    assert await shown(world.store, branch_id) == []
    assert await world.connection.fetchval("SELECT count(*) FROM messages WHERE superseded") == 3


async def test_a_run_that_was_prepared_with_what_is_left_out_now_is_stale(world: World) -> None:
    """Nobody has said anything since: that the conversation is another is told by the position alone."""
    branch_id = await world.branch()
    first, second = world.run(branch_id), world.run(branch_id, if_busy="rollback")
    await world.store.accept(first)
    await world.store.flush([world.flush(first, rows=[says(world)])])
    await world.store.accept(second)
    seen = await world.store.branch_state(PROJECT, branch_id)
    (started,) = (await world.store.flush([world.end(first, "cancelled")])).started
    silent = world.end(second, "failed")
    silent.epoch = started.epoch
    await world.store.flush([silent])
    prepared = world.run(branch_id, position=seen.next_position)
    assert await world.store.accept(prepared) == Stale()
    now = await world.store.branch_state(PROJECT, branch_id)
    assert await world.store.accept(world.run(branch_id, position=now.next_position)) == Accepted(
        running=True
    )


async def test_a_run_that_was_interrupted_is_asked_to_end_and_a_waiting_one_is_woken(world: World) -> None:
    branch_id = await world.branch()
    first = world.run(branch_id)
    await world.store.accept(first)
    await world.store.accept(world.run(branch_id, if_busy="interrupt"))
    cancelled, lost = await world.store.renew({first.run.id: 1})
    assert (list(cancelled), list(lost)) == ([first.run.id], [])
    row = await of_run(world, first)
    assert (row["ready_at"], row["superseded"]) == (NOW, False)


async def test_a_lost_hand_over_keeps_the_order_too(world: World) -> None:
    branch_id = await world.branch()
    first, behind = world.run(branch_id), world.run(branch_id)
    await world.store.accept(first)
    await world.store.accept(behind)
    urgent = world.run(branch_id, if_busy="interrupt")
    await world.store.accept(urgent)
    await world.connection.execute(
        "UPDATE runs SET status = 'cancelled', ended_at = now() WHERE id = $1", first.run.id
    )
    claimed = await world.store.claim(10)
    assert [run.id for run in claimed.started] == [urgent.run.id]


async def test_a_project_has_no_more_than_so_many_queued_runs(world: World) -> None:
    elsewhere, branch_id = await world.branch(), await world.branch()
    await world.store.accept(world.run(branch_id))
    await world.connection.execute(
        "INSERT INTO runs (id, project_id, branch_id, kind, status, request, created_at, expires_at) "
        "SELECT gen_random_uuid(), $1, $2, 'act', 'queued', '{}', now(), now() + interval '1 day' "
        "FROM generate_series(2, $3::int)",
        PROJECT,
        elsewhere,
        MAX_QUEUED_IN_PROJECT,
    )
    assert await world.store.accept(world.run(branch_id)) == Accepted(running=False)
    with pytest.raises(QueueFull, match="in this project"):
        await world.store.accept(world.run(branch_id))
    # What is refused ends nobody.
    with pytest.raises(QueueFull):
        await world.store.accept(world.run(branch_id, if_busy="rollback"))
    assert not await world.connection.fetchval(
        "SELECT count(*) FROM runs WHERE cancel_requested_at IS NOT NULL OR superseded"
    )
