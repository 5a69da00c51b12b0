"""Approvals in Postgres: who decides and who writes for the run take their locks in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from app.adapters.db.approvals import PostgresApprovals
from app.adapters.db.engine import make_engine
from app.adapters.db.session import Database
from app.core.errors import AlreadyDecided
from app.core.events.run import RunCancelled, RunWaiting
from app.ports.approvals import Ruling
from app.ports.storage import Accepted, NewCall, NewMessage
from app.ports.waiting import NewApproval, WaitClosed
from app.services.entries import entry_of
from tests.adapters.db.test_histories import someone_waits
from tests.adapters.db.test_run_store import NOW, PROJECT, World, world
from tests.support.ambient import NOW_MS

pytestmark = pytest.mark.anyio

__all__ = ["world"]


@asynccontextmanager
async def approvals(world: World, url: str) -> AsyncIterator[PostgresApprovals]:
    engine = make_engine(url)
    try:
        yield PostgresApprovals(Database(engine), world.ids)
    finally:
        await engine.dispose()


async def asked(world: World) -> tuple[UUID, UUID]:
    """A run, and its call that waits for a person."""
    new = world.run(await world.branch())
    assert await world.store.accept(new) == Accepted(running=True)
    request, call = world.ids.new(), world.ids.new()
    rows = [
        NewMessage(request, "action_request", '{"n": 1}'),
        NewCall(
            id=call,
            call_id=world.ids.new(),
            attempt=1,
            batch=0,
            index=0,
            function="note",
            action_request_id=request,
            status="pending",
            arguments="{}",
            raw_arguments="{}",
            arguments_digest="d",
            provider_call_id=None,
            started_at=None,
        ),
        NewApproval(
            id=world.ids.new(),
            function_call_id=call,
            function="note",
            arguments="{}",
            arguments_digest="d",
            asked_by="project.gate",
            reason=None,
            expires_at=NOW + timedelta(hours=1),
        ),
    ]
    await world.store.flush([world.flush(new, rows=rows)])
    return new.run.id, call


async def test_a_decision_beside_the_end_of_its_run_is_no_deadlock(world: World, database_url: str) -> None:
    run_id, call = await asked(world)
    async with approvals(world, database_url) as store:
        async with world.connection.transaction():
            # As a flush does that ends the call: first the run, then what is asked.
            await world.connection.execute("SELECT id FROM runs WHERE id = $1 FOR SHARE", run_id)
            deciding = asyncio.create_task(store.decide(PROJECT, call, Ruling("approve", None, None), at=NOW))
            await someone_waits(world.connection)
            await world.connection.execute("SET LOCAL lock_timeout = '5s'")
            await world.connection.execute("SET LOCAL deadlock_timeout = '10ms'")
            await world.connection.execute(
                "UPDATE approvals SET status = 'cancelled', decided_at = $2 WHERE function_call_id = $1",
                call,
                NOW,
            )
        with pytest.raises(AlreadyDecided):
            await deciding


async def test_what_was_decided_stays_decided_when_its_call_is_given_up(
    world: World, database_url: str
) -> None:
    run_id, call = await asked(world)
    async with approvals(world, database_url) as store:
        made = await store.decide(PROJECT, call, Ruling("deny", None, "no"), at=NOW)
    assert made.status == "denied"
    new = world.run(await world.branch())
    new.run.id = run_id
    await world.store.flush([world.flush(new, rows=[WaitClosed(call, NOW)])])
    (settled,) = (await world.store.settled_waits(run_id, 1)).approvals
    assert (settled.status, settled.comment) == ("denied", "no")


@pytest.mark.parametrize("before", [True, False], ids=["before it waits", "while it waits"])
async def test_a_run_that_is_cancelled_is_taken_up_whether_it_waits_already_or_not(
    world: World, before: bool
) -> None:
    new = world.run(await world.branch())
    assert await world.store.accept(new) == Accepted(running=True)
    event = entry_of(RunCancelled("cancelled", usage=None, error=None), 0, NOW_MS)
    later = NOW + timedelta(hours=1)
    waits = replace(new.run, status="waiting", resume="{}", wake_at=later, epoch=1)
    come_to_wait = world.flush(new, entry_of(RunWaiting("approval", later.isoformat()), 2, NOW_MS), end=waits)
    if not before:
        await world.store.flush([come_to_wait])
        assert not (await world.store.claim(10)).woken
    await world.store.request_cancel(PROJECT, new.run.id, at=NOW, cancelled=event)
    if before:
        await world.store.flush([come_to_wait])
    (woken,) = (await world.store.claim(10)).woken
    assert (woken.id, woken.epoch, woken.cancel_requested_at) == (new.run.id, 2, NOW)
    assert not (await world.store.claim(10)).woken
