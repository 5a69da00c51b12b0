"""Runs in Postgres: acceptance, exclusivity, fencing, hand-over, paging. Real database, real races."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db.engine import driver_arguments
from app.adapters.db.run_store import PostgresRuns
from app.core.errors import BranchBusy, NotFound, PreconditionFailed, RunEnded
from app.core.events.run import RunCancelled, RunCompleted, RunExpired, RunQueued, RunStarted
from app.core.record import EventEntry, TokenBlock
from app.ports.storage import (
    Acceptance,
    Accepted,
    CallEnd,
    Flush,
    NewCall,
    NewMessage,
    NewRun,
    Replayed,
    RunRecord,
    Stale,
)
from app.services.entries import entry_of
from tests.support.ambient import NOW_MS, CountingIds, FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
PROJECT, OTHER = UUID(int=1), UUID(int=2)
OWNER = UUID(int=77)


class World:
    """A store on a database with two projects."""

    def __init__(self, url: str) -> None:
        self.ids = CountingIds()
        self.clock = FakeClock()
        self.arguments = driver_arguments(url)
        self.store = self.another()
        self.connection: asyncpg.Connection[Any]

    def another(self, lease_ms: int = 60_000, history_bytes: int = 0) -> PostgresRuns:
        """A further process on the same database."""
        return PostgresRuns(
            self.arguments, owner=OWNER, lease_ms=lease_ms, clock=self.clock, history_bytes=history_bytes
        )

    async def branch(self, project: UUID = PROJECT) -> UUID:
        """A fresh branch."""
        branch_id = self.ids.new()
        await self.connection.execute(
            "INSERT INTO branches (id, project_id) VALUES ($1, $2)", branch_id, project
        )
        return branch_id

    def run(self, branch_id: UUID | None, **more: Any) -> NewRun:
        """A run for an untouched branch, or for none."""
        record = RunRecord(
            id=self.ids.new(),
            project_id=more.pop("project", PROJECT),
            branch_id=branch_id,
            kind="operate",
            status="queued",
            request="{}",
            created_at=NOW,
            expires_at=NOW + timedelta(days=7),
        )
        return NewRun(
            record,
            seen_version=more.pop("version", 1),
            seen_position=more.pop("position", 0),
            entries=[entry_of(RunStarted(), 1, NOW_MS)],
            queued=[entry_of(RunQueued(), 1, NOW_MS)],
            **more,
        )

    def flush(self, new: NewRun, *entries: EventEntry | TokenBlock, **more: Any) -> Flush:
        """Something to write for an accepted run."""
        r = new.run
        return Flush(r.id, r.project_id, r.branch_id, more.pop("epoch", 1), entries, **more)

    def end(self, new: NewRun, status: str = "completed", seq: int = 2) -> Flush:
        """Its end."""
        event = entry_of(RunCompleted("completed", usage=None, error=None), seq, NOW_MS)
        ended = RunRecord(
            **{
                **{name: getattr(new.run, name) for name in RunRecord.__slots__},
                "status": status,
                "ended_at": NOW,
                "last_seq": seq,
            }
        )
        return self.flush(new, event, end=ended)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = World(database_url)
    made.connection = await asyncpg.connect(**made.arguments)
    for project in (PROJECT, OTHER):
        await made.connection.execute(
            "INSERT INTO projects (id, name) VALUES ($1, $2)", project, f"project {project.int}"
        )
    yield made
    await made.store.close()
    await made.connection.close()


async def test_a_run_on_a_free_branch_starts_and_its_first_events_are_stored(world: World) -> None:
    new = world.run(await world.branch())
    assert await world.store.accept(new) == Accepted(running=True)
    stored = await world.store.run(PROJECT, new.run.id)
    assert (stored.status, stored.epoch) == ("running", 1)
    assert list(await world.store.page(new.run.id, after=0, limit=10)) == list(new.entries)


async def test_of_many_runs_at_once_one_runs_and_the_rest_queue_in_order(world: World) -> None:
    branch_id = await world.branch()
    rivals = [world.store, world.another(), world.another()]
    news = [world.run(branch_id) for _ in range(30)]
    outcomes = await asyncio.gather(*(rivals[i % 3].accept(new) for i, new in enumerate(news)))
    assert sum(isinstance(o, Accepted) and o.running for o in outcomes) == 1
    assert all(isinstance(o, Accepted) for o in outcomes)
    for _ in range(len(news)):
        row = await world.connection.fetchrow("SELECT id FROM runs WHERE status = 'running'")
        assert row is not None
        new = next(n for n in news if n.run.id == row["id"])
        epoch = await world.connection.fetchval("SELECT epoch FROM runs WHERE id = $1", row["id"])
        end = world.end(new)
        end.epoch = epoch
        result = await world.store.flush([end])
        assert not result.lost
        waiting = await world.connection.fetchval("SELECT count(*) FROM runs WHERE status = 'queued'")
        assert len(result.started) == (1 if waiting or result.started else 0)
        if result.started:
            oldest = await world.connection.fetchval(
                "SELECT bool_and(id > $1) FROM runs WHERE status = 'queued'", result.started[0].id
            )
            assert oldest in (True, None)
    assert await world.connection.fetchval("SELECT count(*) FROM runs WHERE ended_at IS NULL") == 0
    for rival in rivals[1:]:
        await rival.close()


async def test_accepting_and_ending_race_without_a_run_left_behind(world: World) -> None:
    """However an end and an acceptance meet, no queued run is left on a branch that is free."""
    other = world.another()
    for _ in range(40):
        branch_id = await world.branch()
        first, second = world.run(branch_id), world.run(branch_id)
        assert await world.store.accept(first) == Accepted(running=True)
        ended, accepted = await asyncio.gather(world.store.flush([world.end(first)]), other.accept(second))
        status = await world.connection.fetchval("SELECT status FROM runs WHERE id = $1", second.run.id)
        assert status == "running", (ended, accepted)
    await other.close()


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"version": 2}, Stale()),
        ({"position": 5}, Stale()),
    ],
)
async def test_a_run_prepared_on_another_state_is_stale(
    world: World, change: dict[str, int], outcome: Acceptance
) -> None:
    new = world.run(await world.branch(), **change)
    assert await world.store.accept(new) == outcome
    assert await world.connection.fetchval("SELECT count(*) FROM runs") == 0


async def test_refusals_are_told_apart_and_do_not_fail_their_neighbours(world: World) -> None:
    busy, free, foreign = await world.branch(), await world.branch(), await world.branch(OTHER)
    await world.store.accept(world.run(busy))
    news = [
        world.run(free),
        world.run(busy, if_busy="reject"),
        world.run(foreign),
        world.run(await world.branch(), if_match=9),
        world.run(UUID(int=12345)),
    ]
    outcomes = await asyncio.gather(*(world.store.accept(n) for n in news), return_exceptions=True)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Accepted, BranchBusy, NotFound, PreconditionFailed, NotFound]


async def test_data_that_the_database_refuses_fails_its_own_run_only(world: World) -> None:
    good, bad = world.run(await world.branch()), world.run(await world.branch())
    bad.run.request_id = "nul \0 inside"
    outcomes = await asyncio.gather(world.store.accept(good), world.store.accept(bad), return_exceptions=True)
    assert outcomes[0] == Accepted(running=True)
    assert isinstance(outcomes[1], asyncpg.DataError)

    other = world.run(await world.branch())
    await world.store.accept(other)
    poison = entry_of(RunStarted(), 2, NOW_MS)
    poison.meta = '{"no json'
    result = await world.store.flush([world.flush(good, poison), world.end(other)])
    assert list(result.rejected) == [good.run.id]
    assert (await world.store.run(PROJECT, other.run.id)).status == "completed"


async def test_an_idempotency_key_names_one_run_whoever_comes_first(world: World) -> None:
    branches = [await world.branch() for _ in range(6)]
    key = ("operate", "k1", b"same body")
    news = [world.run(b, idempotency=key) for b in branches]
    outcomes = await asyncio.gather(*(world.store.accept(n) for n in news))
    accepted = [n.run.id for n, o in zip(news, outcomes, strict=True) if isinstance(o, Accepted)]
    assert len(accepted) == 1
    assert outcomes.count(Replayed(accepted[0])) == 5
    other = world.run(branches[1], idempotency=("operate", "k1", b"another body"))
    with pytest.raises(Exception, match="another body"):
        await world.store.accept(other)


async def test_a_refused_run_leaves_its_idempotency_key_unused(world: World) -> None:
    busy = await world.branch()
    await world.store.accept(world.run(busy))
    key = ("operate", "k2", b"body")
    with pytest.raises(BranchBusy):
        await world.store.accept(world.run(busy, if_busy="reject", idempotency=key))
    assert await world.store.accept(world.run(await world.branch(), idempotency=key)) == Accepted(True)


async def test_pages_join_events_and_blocks_at_any_cut(world: World) -> None:
    new = world.run(await world.branch())
    await world.store.accept(new)
    block = TokenBlock(2, NOW_MS, 0, 1, 0, ["a", "bé", "", "x" * 300], [0, 5, 0, 900])
    more = TokenBlock(6, NOW_MS + 1000, 0, 1, 0, ["end"], [0])
    await world.store.flush([world.flush(new, block, more)])
    assert await world.store.last_seq(new.run.id) == 6
    await world.store.flush([world.flush(new, entry_of(RunStarted(), 7, NOW_MS))])
    assert await world.store.last_seq(new.run.id) == 7
    assert await world.store.last_seq(world.ids.new()) == 0
    flat = [(1, "event"), *((2 + i, t) for i, t in enumerate(block.texts)), (6, "end"), (7, "event")]
    for after in range(8):
        for limit in (1, 2, 100):
            entries = await world.store.page(new.run.id, after=after, limit=limit)
            got = [pair for entry in entries for pair in told(entry)]
            assert got == flat[after : after + len(got)]
            assert len(got) >= min(limit, len(flat) - after)
    stored = (await world.store.page(new.run.id, after=1, limit=1))[0]
    assert stored == block


def told(entry: EventEntry | TokenBlock) -> Sequence[tuple[int, str]]:
    """(seq, text or "event") of what an entry holds."""
    if isinstance(entry, EventEntry):
        return [(entry.seq, "event")]
    return [(entry.seq + i, text) for i, text in enumerate(entry.texts)]


async def test_messages_get_positions_and_calls_their_ends(world: World) -> None:
    branch_id = await world.branch()
    new = world.run(branch_id)
    await world.store.accept(new)
    ids = [world.ids.new() for _ in range(6)]
    request, response, quick_request, quick_response, call, quick = ids

    def a_call(id: UUID, request_id: UUID, index: int) -> NewCall:
        return NewCall(
            id=id,
            call_id=world.ids.new(),
            attempt=1,
            batch=0,
            index=index,
            function="f",
            action_request_id=request_id,
            status="processing",
            arguments="{}",
            raw_arguments="{}",
            arguments_digest="d",
            provider_call_id=None,
            started_at=NOW,
        )

    def a_message(id: UUID, kind: str, answers: UUID | None = None) -> NewMessage:
        return NewMessage(id, kind, '{"n": 1}', action_request_id=answers)

    opening = [
        a_message(request, "action_request"),
        a_call(call, request, 0),
        a_message(quick_request, "action_request"),
        a_call(quick, quick_request, 1),
        CallEnd(quick, "failed", 0.0, None, '{"error": "X"}', None, NOW),
        a_message(quick_response, "action_response", quick_request),
    ]
    await world.store.flush([world.flush(new, rows=opening)])
    assert [c.id for c in await world.store.open_calls(new.run.id)] == [call]
    closing = [
        CallEnd(call, "completed", 0.5, "null", None, None, NOW),
        a_message(response, "action_response", request),
    ]
    await world.store.flush([world.flush(new, rows=closing)])
    state = await world.store.branch_state(PROJECT, branch_id)
    assert [m.id for m in state.history.said] == [request, quick_request, quick_response, response]
    assert state.next_position == 4
    rows = await world.connection.fetch("SELECT id, position, action_request_id FROM messages ORDER BY 2")
    assert [tuple(row) for row in rows] == [
        (request, 0, None),
        (quick_request, 1, None),
        (quick_response, 2, quick_request),
        (response, 3, request),
    ]
    assert not await world.store.open_calls(new.run.id)
    rows = await world.connection.fetch("SELECT status FROM function_calls ORDER BY index")
    assert [row["status"] for row in rows] == ["completed", "failed"]


async def test_cancelling_a_queued_run_ends_it_and_a_running_one_is_told(world: World) -> None:
    branch_id = await world.branch()
    running, queued = world.run(branch_id), world.run(branch_id)
    await world.store.accept(running)
    await world.store.accept(queued)
    event = entry_of(RunCancelled("cancelled", usage=None, error=None), 0, NOW_MS)
    ended = await world.store.request_cancel(PROJECT, queued.run.id, at=NOW, cancelled=event)
    assert (ended.status, ended.last_seq) == ("cancelled", 2)
    assert [e.seq for e in await world.store.page(queued.run.id, after=0, limit=9)] == [1, 2]
    with pytest.raises(RunEnded):
        await world.store.request_cancel(PROJECT, queued.run.id, at=NOW, cancelled=event)
    with pytest.raises(NotFound):
        await world.store.request_cancel(OTHER, running.run.id, at=NOW, cancelled=event)
    told = await world.store.request_cancel(PROJECT, running.run.id, at=NOW, cancelled=event)
    assert told.status == "running"
    assert await world.store.renew({running.run.id: 1}) == ([running.run.id], [])


async def test_a_foreign_project_sees_nothing(world: World) -> None:
    branch_id = await world.branch()
    new = world.run(branch_id)
    await world.store.accept(new)
    with pytest.raises(NotFound):
        await world.store.run(OTHER, new.run.id)
    with pytest.raises(NotFound):
        await world.store.branch_state(OTHER, branch_id)


async def test_a_queued_run_whose_time_is_over_expires(world: World) -> None:
    branch_id = await world.branch()
    running, late, later = (world.run(branch_id) for _ in range(3))
    late.run.expires_at, later.run.expires_at = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
    for new in (running, late, later):
        await world.store.accept(new)
    event = entry_of(RunExpired("expired", usage=None, error=None), 0, NOW_MS)
    assert await world.store.expire(at=NOW, expired=event) == [late.run.id]
    ended = await world.store.run(PROJECT, late.run.id)
    assert (ended.status, ended.last_seq) == ("expired", 2)
    assert [e.seq for e in await world.store.page(late.run.id, after=0, limit=9)] == [1, 2]
    assert (await world.store.flush([world.end(running)])).started[0].id == later.run.id


async def test_a_queued_run_that_is_being_cancelled_does_not_fail_the_one_before_it(world: World) -> None:
    branch_id = await world.branch()
    running, queued = world.run(branch_id), world.run(branch_id)
    await world.store.accept(running)
    await world.store.accept(queued)
    other = await asyncpg.connect(**world.arguments)
    cancelling = other.transaction()
    await cancelling.start()
    await other.execute("UPDATE runs SET status = 'cancelled', ended_at = now() WHERE id = $1", queued.run.id)
    ending = asyncio.create_task(world.store.flush([world.end(running)]))
    blocked = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    while not await world.connection.fetchval(blocked):
        assert not ending.done()
    await cancelling.commit()
    result = await ending
    assert not result.rejected
    assert not result.started
    assert (await world.store.run(PROJECT, running.run.id)).status == "completed"
    await other.close()
