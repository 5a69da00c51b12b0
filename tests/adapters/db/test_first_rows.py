"""What a run begins with is stored with its acceptance, or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from app.core.errors import BranchBusy
from app.ports.storage import Accepted, NewCall, NewMessage, NewRun, Replayed, Row, Stale
from tests.adapters.db.test_run_store import NOW, World, world

pytestmark = pytest.mark.anyio

__all__ = ["world"]


def rows(world: World) -> list[Row]:
    """A proposed call."""
    request = world.ids.new()
    call = NewCall(
        id=world.ids.new(),
        call_id=world.ids.new(),
        attempt=1,
        batch=0,
        index=0,
        function="add",
        action_request_id=request,
        status="processing",
        arguments="{}",
        raw_arguments='"{}"',
        arguments_digest="d",
        provider_call_id=None,
        started_at=NOW,
        gate=None,
    )
    return [NewMessage(request, "action_request", "{}", sender="user", recipient="add"), call]


async def stored(world: World, new: NewRun) -> tuple[int, int, int]:
    """How many runs, messages and calls there are of it."""
    counts = [
        await world.connection.fetchval(f"SELECT count(*) FROM {table} WHERE {column} = $1", new.run.id)
        for table, column in (("runs", "id"), ("messages", "run_id"), ("function_calls", "run_id"))
    ]
    return counts[0], counts[1], counts[2]


async def test_runs_with_and_without_rows_start_together(world: World) -> None:
    news = [world.run(await world.branch(), rows=rows(world) if n % 2 else ()) for n in range(6)]
    outcomes = await asyncio.gather(*(world.store.accept(new) for new in news))
    assert outcomes == [Accepted(running=True)] * 6
    assert [await stored(world, new) for new in news] == [(1, 0, 0), (1, 1, 1)] * 3
    for new in news:
        position = await world.connection.fetchval(
            "SELECT next_position FROM branches WHERE id = $1", new.run.branch_id
        )
        assert position == len(new.rows) // 2


async def test_a_run_that_has_to_queue_stores_no_rows(world: World) -> None:
    branch = await world.branch()
    await world.store.accept(world.run(branch))
    new = world.run(branch, rows=rows(world))
    assert await world.store.accept(new) == Accepted(running=False)
    assert await stored(world, new) == (1, 0, 0)


@pytest.mark.parametrize("change", [{"version": 2}, {"position": 5}])
async def test_a_stale_run_stores_no_rows(world: World, change: dict[str, Any]) -> None:
    new = world.run(await world.branch(), rows=rows(world), **change)
    assert await world.store.accept(new) == Stale()
    assert await stored(world, new) == (0, 0, 0)


async def test_a_refused_run_and_a_repeated_one_store_no_rows(world: World) -> None:
    key = ("act", "k", b"body")
    first = world.run(await world.branch(), rows=rows(world), idempotency=key)
    assert await world.store.accept(first) == Accepted(running=True)
    assert await stored(world, first) == (1, 1, 1)
    again = world.run(await world.branch(), rows=rows(world), idempotency=key)
    assert await world.store.accept(again) == Replayed(first.run.id)
    assert first.run.branch_id is not None
    busy = world.run(first.run.branch_id, rows=rows(world), position=1, if_busy="reject")
    with pytest.raises(BranchBusy):
        await world.store.accept(busy)
    assert await stored(world, again) == await stored(world, busy) == (0, 0, 0)


@pytest.mark.parametrize("poison", [{"arguments": '{"no json'}, {"status": "no such status"}])
async def test_rows_that_the_database_refuses_fail_their_own_run_only(
    world: World, poison: dict[str, Any]
) -> None:
    message, call = rows(world)
    assert isinstance(call, NewCall)
    bad = world.run(await world.branch(), rows=[message, replace(call, **poison)])
    good = world.run(await world.branch(), rows=rows(world))
    outcomes = await asyncio.gather(*map(world.store.accept, (bad, good)), return_exceptions=True)
    assert isinstance(outcomes[0], asyncpg.DataError | asyncpg.IntegrityConstraintViolationError)
    assert outcomes[1] == Accepted(running=True)
    assert (await stored(world, bad), await stored(world, good)) == ((0, 0, 0), (1, 1, 1))


async def test_rivals_for_one_branch_neither_deadlock_nor_store_rows_twice(world: World) -> None:
    """Each process locks the branch before it grows it: two share locks would wait for each other."""
    rivals = [world.store, world.another(), world.another()]
    for _ in range(20):
        branch = await world.branch()
        news = [world.run(branch, rows=rows(world)) for _ in rivals]
        outcomes = await asyncio.gather(*(rival.accept(new) for rival, new in zip(rivals, news, strict=True)))
        assert outcomes.count(Accepted(running=True)) == 1
        for new, outcome in zip(news, outcomes, strict=True):
            ran = outcome == Accepted(running=True)
            assert (await stored(world, new))[1:] == (int(ran), int(ran))
    for rival in rivals[1:]:
        await rival.close()
    deadlocks = await world.connection.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    assert deadlocks == 0
