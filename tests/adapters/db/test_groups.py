"""Groups of runs and rows are written whole, whatever their size."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from app.adapters.db.accept import SOURCES
from app.adapters.db.sources import Source
from app.core.events.run import RunStarted
from app.core.record import TokenBlock
from app.core.usage.counts import Usage
from app.ports.attempts import NewAttempt
from app.ports.storage import Accepted, CallEnd, NewCall, NewMessage, NewRun, Replayed, Row
from app.services.entries import entry_of
from tests.adapters.db.test_histories import someone_waits
from tests.adapters.db.test_run_store import NOW, PROJECT, World, world
from tests.support.ambient import NOW_MS

pytestmark = pytest.mark.anyio

__all__ = ["world"]


_ATTRIBUTES = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type FROM pg_type t
JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
WHERE t.typname = $1 ORDER BY a.attnum"""


@pytest.mark.parametrize("rows", SOURCES, ids=lambda rows: rows.type)
async def test_a_type_of_the_schema_has_the_columns_that_are_written(world: World, rows: Source) -> None:
    found = [tuple(row) for row in await world.connection.fetch(_ATTRIBUTES, rows.type)]
    asked = (column.split() for column in rows.columns.split(", "))
    spelled = [
        (name, await world.connection.fetchval("SELECT $1::regtype::text", kind)) for name, kind in asked
    ]
    assert found == spelled


def calls_of(world: World, count: int) -> list[Row]:
    """Proposed calls with their requests."""
    out: list[Row] = []
    for index in range(count):
        request, call = world.ids.new(), world.ids.new()
        out.append(NewMessage(request, "action_request", f'{{"n": {index}}}'))
        named: dict[str, Any] = {"id": call, "call_id": call, "index": index, "action_request_id": request}
        text: dict[str, Any] = {
            "arguments": "{}",
            "raw_arguments": '"{}"',
            "arguments_digest": "d",
            "provider_call_id": None,
        }
        state: dict[str, Any] = {
            "attempt": 1,
            "batch": 0,
            "function": "add",
            "status": "processing",
            "started_at": NOW,
        }
        out.append(NewCall(**named, **text, **state))
    return out


def answers_to(world: World, rows: Sequence[Row]) -> list[Row]:
    """Their ends and responses."""
    calls = [row for row in rows if isinstance(row, NewCall)]
    ends: list[Row] = [CallEnd(call.id, "completed", 0.1, "1", None, None, NOW) for call in calls]
    responses = [
        NewMessage(world.ids.new(), "action_response", "{}", action_request_id=call.action_request_id)
        for call in calls
    ]
    return [*ends, *responses]


def attempts_of(count: int) -> list[NewAttempt]:
    """Attempts, some of which nobody priced or knows the model of."""
    out = []
    for number in range(1, count + 1):
        names = ["small", "openai", "gpt"] if number % 2 else [None] * 3
        usage = Usage(number, 2, number % 2 or None, None, 1, reported=number % 2 > 0)
        cost = Decimal(number).scaleb(-9) if number % 2 else None
        told: Any = (*names, "failed", None, usage, cost, NOW, NOW)
        out.append(NewAttempt(0, 0, number, "main", *told))
    return out


async def stored_positions(world: World, new: NewRun) -> list[int]:
    """Of the messages of its branch."""
    rows = await world.connection.fetch(
        "SELECT position FROM messages WHERE branch_id = $1 ORDER BY position", new.run.branch_id
    )
    return [row["position"] for row in rows]


@pytest.mark.parametrize("runs", [1, 2, 5])
@pytest.mark.parametrize("each", [0, 1, 2, 5])
async def test_what_a_group_writes_is_there(world: World, runs: int, each: int) -> None:
    news: list[NewRun] = []
    for _ in range(runs):
        new = world.run(await world.branch(), rows=calls_of(world, each))
        new.entries = [entry_of(RunStarted(), n + 1, NOW_MS) for n in range(each + 1)]
        news.append(new)
    assert await asyncio.gather(*map(world.store.accept, news)) == [Accepted(running=True)] * runs
    flushes = []
    for new in news:
        flush = world.end(new, seq=3 * each + 2)
        blocks = [TokenBlock(each + 2 + 2 * n, NOW_MS, 0, 1, 0, ["a", "b"], [0, 1]) for n in range(each)]
        flush.entries = [*blocks, *flush.entries]
        flush.rows = [*answers_to(world, new.rows), *attempts_of(each)]
        flushes.append(flush)
    result = await world.store.flush(flushes)
    assert (result.lost, result.rejected, result.started) == ([], {}, [])
    for new in news:
        found = await world.store.page(new.run.id, after=0, limit=100)
        assert [e.last_seq for e in found] == [
            *range(1, each + 2),
            *range(each + 3, 3 * each + 2, 2),
            3 * each + 2,
        ]
        assert await stored_positions(world, new) == list(range(2 * each))
        said = (await world.store.branch_state(PROJECT, new.run.branch_id)).history.said  # type: ignore[arg-type]
        assert [m.id for m in said[:each]] == [row.id for row in new.rows if isinstance(row, NewMessage)]
        calls = await world.store.calls_of(new.run.id)
        assert [call.status for call in calls] == ["completed"] * each
        assert await world.store.attempts_of(new.run.id) == (attempts_of(each), [])
        assert (await world.store.run(PROJECT, new.run.id)).status == "completed"


_WRITERS = """
SELECT count(DISTINCT r.xmin::text) AS runs, count(DISTINCT k.xmin::text) AS keys, count(k.key) AS used
FROM runs r LEFT JOIN idempotency_keys k ON k.run_id = r.id WHERE r.id = ANY($1)"""


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5])
async def test_runs_with_keys_are_accepted_together_and_each_key_is_used_once(
    world: World, count: int, starts: bool
) -> None:
    async def accepted(*names: str) -> tuple[Sequence[NewRun], Sequence[Any]]:
        news = [
            world.run(await world.branch(), starts=starts, idempotency=("act", name, b"body"))
            for name in names
        ]
        return news, await asyncio.gather(*(world.store.accept(new) for new in news))

    keys = [str(n) for n in range(count)]
    firsts, outcomes = await accepted(*keys)
    assert outcomes == [Accepted(running=starts)] * count
    ids = [new.run.id for new in firsts]
    assert tuple(await world.connection.fetchrow(_WRITERS, ids)) == (1, 1, count)  # type: ignore[arg-type]
    (*_, other), outcomes = await accepted(*keys, "another")
    assert outcomes == [*map(Replayed, ids), Accepted(running=starts)]
    assert (await world.store.run(PROJECT, other.run.id)).status == ("running" if starts else "queued")


async def test_a_run_that_is_queued_while_the_end_waits_for_the_branch_is_started_by_it(world: World) -> None:
    branch_id = await world.branch()
    first, second = world.run(branch_id), world.run(branch_id)
    await world.store.accept(first)
    transaction = world.connection.transaction()
    await transaction.start()
    await world.connection.execute("SELECT FROM branches WHERE id = $1 FOR NO KEY UPDATE", branch_id)
    ending = asyncio.create_task(world.store.flush([world.end(first)]))
    await someone_waits(world.connection)
    await world.connection.execute(
        "INSERT INTO runs (id, project_id, branch_id, kind, status, request, created_at, expires_at) "
        "VALUES ($1, $2, $3, 'operate', 'queued', '{}', $4, $4)",
        *(second.run.id, PROJECT, branch_id, NOW),
    )
    await transaction.commit()
    (started,) = (await ending).started
    assert (started.id, started.status, started.epoch) == (second.run.id, "running", 1)


async def test_a_run_that_comes_to_wait_keeps_its_branch(world: World) -> None:
    branch_id = await world.branch()
    first, second = world.run(branch_id), world.run(branch_id)
    await world.store.accept(first)
    assert await world.store.accept(second) == Accepted(running=False)
    flush = world.end(first, status="waiting")
    assert flush.end is not None
    flush.end.ended_at = None
    result = await world.store.flush([flush])
    assert (result.lost, result.started) == ([], [])
    assert (await world.store.run(PROJECT, second.run.id)).status == "queued"


async def test_where_the_next_run_is_cancelled_meanwhile_the_one_after_it_is_started(world: World) -> None:
    branch_id = await world.branch()
    first, second, third = (world.run(branch_id) for _ in range(3))
    for new in (first, second, third):
        await world.store.accept(new)
    transaction = world.connection.transaction()
    await transaction.start()
    await world.connection.execute(
        "UPDATE runs SET status = 'cancelled', ended_at = now() WHERE id = $1", second.run.id
    )
    ending = asyncio.create_task(world.store.flush([world.end(first)]))
    await someone_waits(world.connection)
    await transaction.commit()
    assert [run.id for run in (await ending).started] == [third.run.id]


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("backwards", [False, True])
async def test_a_group_waits_for_a_branch_with_no_later_one_in_its_hands(
    world: World, count: int, backwards: bool
) -> None:
    news = [world.run(await world.branch()) for _ in range(count)]
    for new in news:
        await world.store.accept(new)
    first, *later = sorted(new.run.branch_id for new in news)  # type: ignore[type-var]
    transaction = world.connection.transaction()
    await transaction.start()
    await world.connection.execute("SELECT FROM branches WHERE id = $1 FOR NO KEY UPDATE", first)
    group = [world.end(new) for new in news]
    flushing = asyncio.create_task(world.store.flush(group[::-1] if backwards else group))
    await someone_waits(world.connection)
    # Whoever accepts runs takes the branches in this order, and would else wait for the group for ever.
    await world.connection.execute(
        "SELECT FROM branches WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE NOWAIT", later
    )
    await transaction.commit()
    assert not (await flushing).lost


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("backwards", [False, True])
async def test_a_group_waits_for_a_key_with_no_later_one_in_its_hands(
    world: World, count: int, backwards: bool
) -> None:
    keys = [f"key {n}" for n in range(count)]
    news = [world.run(None, idempotency=("scope", key, b"asked")) for key in keys]
    use = (
        "INSERT INTO idempotency_keys (project_id, scope, key, fingerprint) "
        "SELECT $1, 'scope', key, 'asked' FROM unnest($2::text[]) AS key"
    )
    transaction = world.connection.transaction()
    await transaction.start()
    await world.connection.execute(use, PROJECT, keys[:1])
    accepting = asyncio.gather(*map(world.store.accept, news[::-1] if backwards else news))
    await someone_waits(world.connection)
    # Another process that has the same keys would else wait for the group for ever.
    await world.connection.execute("SET LOCAL lock_timeout = '0.5s'")
    await world.connection.execute(use, PROJECT, keys[1:])
    await transaction.rollback()
    assert await accepting == [Accepted(running=True)] * count
