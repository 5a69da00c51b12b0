"""Client calls in Postgres: one worker, one result, and nothing that was taken is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.adapters.db.client_calls import PostgresClientCalls
from app.adapters.db.engine import make_engine
from app.adapters.db.session import Database
from app.core.errors import AlreadyAnswered, ArgumentsDiffer, CallLeased, CallNotWaiting, ClaimLost, NotFound
from app.core.events.run import RunCancelled, RunWaiting
from app.core.events.tool import ToolStart
from app.ports.catalog import Slice
from app.ports.client_calls import Brought, Claim
from app.ports.storage import Accepted, NewCall, NewMessage, NewRun
from app.ports.waiting import NewClientCall, WaitClosed
from app.services.entries import entry_of
from tests.adapters.db.test_histories import someone_waits
from tests.adapters.db.test_run_store import NOW, OTHER, PROJECT, World, world
from tests.support.ambient import NOW_MS

pytestmark = pytest.mark.anyio

__all__ = ["world"]

HOUR = timedelta(hours=1)
ONE, TWO = UUID(int=101), UUID(int=102)
"""Tokens of leases."""
DONE = Brought(None, None, "digest", output="7")


@pytest.fixture
async def store(world: World, database_url: str) -> AsyncIterator[PostgresClientCalls]:
    engine = make_engine(database_url)
    yield PostgresClientCalls(Database(engine))
    await engine.dispose()


async def handed_over(world: World, function: str = "door") -> tuple[NewRun, UUID]:
    """A run, and its call that waits for a client."""
    new = world.run(await world.branch())
    assert await world.store.accept(new) == Accepted(running=True)
    request, call, call_id = world.ids.new(), world.ids.new(), world.ids.new()
    proposal = NewCall(
        id=call,
        call_id=call_id,
        attempt=1,
        batch=0,
        index=0,
        function=function,
        action_request_id=request,
        status="processing",
        arguments="{}",
        raw_arguments="{}",
        arguments_digest="d",
        provider_call_id=None,
        started_at=NOW,
    )
    handed = NewClientCall(call, call_id, 1, function, "{}", "d", 60, NOW, NOW + HOUR)
    rows = [NewMessage(request, "action_request", '{"n": 1}'), proposal, handed]
    await world.store.flush([world.flush(new, rows=rows)])
    return new, call


async def waits(world: World, new: NewRun) -> None:
    """The run comes to wait."""
    end = replace(new.run, status="waiting", resume="{}", wake_at=NOW + HOUR, epoch=1)
    event = entry_of(RunWaiting("client_result", (NOW + HOUR).isoformat()), 2, NOW_MS)
    await world.store.flush([world.flush(new, event, end=end)])


async def states(world: World, call: UUID) -> tuple[str, str]:
    """Of the client call, and of the function call."""
    row = await world.connection.fetchrow(
        "SELECT h.status AS handed, c.status FROM client_calls h JOIN function_calls c "
        "ON c.id = h.function_call_id WHERE c.id = $1",
        call,
    )
    assert row is not None
    return row["handed"], row["status"]


async def test_a_call_that_is_handed_over_is_pending_and_written_twice_it_is_the_same(
    world: World, store: PostgresClientCalls
) -> None:
    new, call = await handed_over(world)
    assert await states(world, call) == ("waiting", "pending")
    await store.bring(PROJECT, call, DONE, at=NOW)
    start = entry_of(ToolStart("t", "door", "c"), 2, NOW_MS)
    again = NewClientCall(call, ONE, 1, "door", "{}", "d", 60, NOW, NOW + HOUR)
    result = await world.store.flush([world.flush(new, start, rows=[again])])
    assert not result.rejected
    assert await states(world, call) == ("answered", "pending")


async def test_a_page_has_what_was_asked_for(world: World, store: PostgresClientCalls) -> None:
    (first, one), (_, two) = await handed_over(world), await handed_over(world, "hatch")
    await store.bring(PROJECT, one, DONE, at=NOW)

    async def page(project: UUID = PROJECT, **filters: Any) -> list[UUID]:
        found = await store.page(project, filters, Slice(10, True, None))
        return [call.function_call_id for call in found.items]

    assert await page() == [two, one]
    assert await page(status="waiting") == await page(function="hatch") == [two]
    assert await page(run_id=first.run.id) == await page(branch_id=first.run.branch_id) == [one]
    assert await page(OTHER) == []
    part = await store.page(PROJECT, {}, Slice(1, False, None))
    assert ([call.function_call_id for call in part.items], part.has_more) == ([one], True)


async def test_a_lease_is_given_kept_and_lost(world: World, store: PostgresClientCalls) -> None:
    _, call = await handed_over(world)
    claim, later = Claim(None, None, ONE, None), NOW + timedelta(seconds=61)
    given = await store.claim(PROJECT, call, claim, at=NOW)
    assert (given.lease_token, given.lease_until) == (ONE, NOW + timedelta(seconds=60))
    rival = Claim(None, None, TWO, 5)
    with pytest.raises(CallLeased):
        await store.claim(PROJECT, call, rival, at=NOW)
    # Its own lease still counts when it is over, as long as nobody else has one.
    kept = await store.claim(PROJECT, call, Claim(None, ONE, TWO, 1), at=later)
    assert (kept.lease_token, kept.lease_until) == (ONE, later + timedelta(seconds=1))
    taken = await store.claim(PROJECT, call, rival, at=later + timedelta(seconds=2))
    assert taken.lease_token == TWO
    with pytest.raises(ClaimLost):
        await store.claim(PROJECT, call, Claim(None, ONE, ONE, 1), at=later + HOUR / 2)
    with pytest.raises(ClaimLost):
        await store.bring(PROJECT, call, replace(DONE, held=ONE), at=later + HOUR / 2)
    made = await store.bring(PROJECT, call, replace(DONE, held=TWO), at=later + HOUR / 2)
    assert (made.status, made.output) == ("answered", "7")


async def test_what_does_not_fit_is_refused(world: World, store: PostgresClientCalls) -> None:
    _, call = await handed_over(world)
    with pytest.raises(NotFound):
        await store.bring(OTHER, call, DONE, at=NOW)
    with pytest.raises(ArgumentsDiffer):
        await store.bring(PROJECT, call, replace(DONE, arguments_digest="e"), at=NOW)
    with pytest.raises(CallNotWaiting, match="expired"):
        await store.bring(PROJECT, call, DONE, at=NOW + HOUR)
    with pytest.raises(CallNotWaiting, match="expired"):
        await store.claim(PROJECT, call, Claim(None, None, ONE, None), at=NOW + HOUR)
    made = await store.bring(PROJECT, call, replace(DONE, arguments_digest="d"), at=NOW)
    assert await store.bring(PROJECT, call, DONE, at=NOW + HOUR) == made
    with pytest.raises(AlreadyAnswered):
        await store.bring(PROJECT, call, replace(DONE, digest="other"), at=NOW)


@pytest.mark.parametrize("before", [True, False], ids=["before it waits", "while it waits"])
async def test_a_result_has_its_run_taken_up_whether_it_waits_already_or_not(
    world: World, store: PostgresClientCalls, before: bool
) -> None:
    new, call = await handed_over(world)
    if not before:
        await waits(world, new)
        assert not (await world.store.claim(10)).woken
    await store.bring(PROJECT, call, DONE, at=NOW)
    if before:
        await waits(world, new)
    (woken,) = (await world.store.claim(10)).woken
    assert woken.id == new.run.id
    (found,) = (await world.store.settled_waits(woken.id, woken.epoch)).client_calls
    assert (found.status, found.output) == ("answered", "7")
    assert not (await world.store.claim(10)).woken


async def test_a_run_is_taken_up_when_the_time_of_its_call_is_over(
    world: World, store: PostgresClientCalls
) -> None:
    new, call = await handed_over(world)
    await waits(world, new)
    world.clock.now_ms += 3_600_000
    (woken,) = (await world.store.claim(10)).woken
    (found,) = (await world.store.settled_waits(woken.id, woken.epoch)).client_calls
    assert found.status == "expired"
    with pytest.raises(CallNotWaiting, match="expired"):
        await store.bring(PROJECT, call, DONE, at=NOW)


async def test_after_a_cancellation_no_result_is_taken(world: World, store: PostgresClientCalls) -> None:
    new, call = await handed_over(world)
    event = entry_of(RunCancelled("cancelled", usage=None, error=None), 0, NOW_MS)
    await world.store.request_cancel(PROJECT, new.run.id, at=NOW, cancelled=event)
    with pytest.raises(CallNotWaiting, match="cancelled"):
        await store.bring(PROJECT, call, DONE, at=NOW)


async def test_what_is_closed_by_its_run_s_holder_takes_no_result(
    world: World, store: PostgresClientCalls
) -> None:
    new, call = await handed_over(world)
    for epoch, status in ((7, "waiting"), (1, "cancelled")):
        (found,) = (await world.store.settled_waits(new.run.id, epoch, close=True)).client_calls
        assert found.status == status
    with pytest.raises(CallNotWaiting, match="cancelled"):
        await store.bring(PROJECT, call, DONE, at=NOW)


async def test_what_was_brought_stays_when_its_call_is_given_up(
    world: World, store: PostgresClientCalls
) -> None:
    (new, call), (other, left) = await handed_over(world), await handed_over(world)
    await store.bring(PROJECT, call, DONE, at=NOW)
    await world.store.flush([world.flush(new, rows=[WaitClosed(call, NOW)])])
    await world.store.flush([world.flush(other, rows=[WaitClosed(left, NOW)])])
    assert await states(world, call) == ("answered", "pending")
    assert await states(world, left) == ("cancelled", "pending")


async def test_a_result_at_the_moment_of_closing_is_found_or_refused(
    world: World, store: PostgresClientCalls
) -> None:
    new, call = await handed_over(world)
    async with world.connection.transaction():
        # As a client's request does, which is about to be committed.
        await world.connection.execute("SELECT id FROM runs WHERE id = $1 FOR NO KEY UPDATE", new.run.id)
        await world.connection.execute(
            "UPDATE client_calls SET status = 'answered', output = '7', result_digest = 'd', ended_at = $2 "
            "WHERE function_call_id = $1",
            call,
            NOW,
        )
        closing = asyncio.create_task(world.store.settled_waits(new.run.id, 1, close=True))
        await someone_waits(world.connection)
    (found,) = (await closing).client_calls
    assert found.status == "answered"


async def test_a_result_beside_the_end_of_its_run_is_no_deadlock(
    world: World, store: PostgresClientCalls
) -> None:
    new, call = await handed_over(world)
    async with world.connection.transaction():
        # As a flush does that ends the call: first the run, then what it waits for.
        await world.connection.execute("SELECT id FROM runs WHERE id = $1 FOR SHARE", new.run.id)
        bringing = asyncio.create_task(store.bring(PROJECT, call, DONE, at=NOW))
        await someone_waits(world.connection)
        await world.connection.execute("SET LOCAL lock_timeout = '5s'")
        await world.connection.execute("SET LOCAL deadlock_timeout = '10ms'")
        await world.connection.execute(
            "UPDATE client_calls SET status = 'cancelled', ended_at = $2 WHERE function_call_id = $1",
            call,
            NOW,
        )
    with pytest.raises(CallNotWaiting, match="cancelled"):
        await bringing
