"""Attempts in Postgres: written with the log or not at all, once, and summed exactly."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db.engine import make_engine
from app.adapters.db.session import Database
from app.adapters.db.usage import PostgresUsage
from app.core.errors import NotFound
from app.core.events.session import SessionStart, StreamInit
from app.core.record import TokenBlock
from app.core.usage.counts import MAX_COUNT, Usage
from app.ports.attempts import LostAttempt, NewAttempt
from app.ports.catalog import Slice
from app.ports.storage import Accepted, NewRun
from app.ports.usage import GroupBy, Span
from app.services.entries import entry_of
from tests.adapters.db.test_run_store import NOW, OTHER, PROJECT, World, world
from tests.support.ambient import NOW_MS

__all__ = ["world"]

pytestmark = pytest.mark.anyio

TODAY = NOW.date()
ASCENDING = Slice(100, False, None)


@pytest.fixture
async def usage(database_url: str) -> AsyncIterator[PostgresUsage]:
    engine = make_engine(database_url)
    yield PostgresUsage(Database(engine))
    await engine.dispose()


def attempt(number: int = 1, **more: Any) -> NewAttempt:
    """An attempt with what does not matter filled in."""
    made = NewAttempt(
        *(0, 0, number, "main", "small", "openai", "gpt", "completed", None),
        Usage(10, 3, 4, None, 1, reported=True),
        Decimal("0.000001"),
        NOW,
        NOW,
    )
    return replace(made, **more)


async def started(world: World, branch: UUID | None = None, **more: Any) -> NewRun:
    """A run that is under way."""
    branch = branch or await world.branch(more.get("project", PROJECT))
    new = world.run(branch, **more)
    assert await world.store.accept(new) == Accepted(running=True)
    return new


async def test_an_attempt_is_read_as_it_was_written(world: World, usage: PostgresUsage) -> None:
    new = await started(world)
    odd = attempt(
        2,
        stream=3,
        fallback_index=1,
        purpose="voter",
        model=None,
        provider=None,
        wire_model='a "name" 🦦',
        outcome="lost",
        code="X",
        usage=Usage(MAX_COUNT, 0, estimated=True),
        cost=None,
        ended_at=NOW + timedelta(milliseconds=1),
    )
    cost = Decimal("2147483647000000.000000000000000001")
    dear = attempt(1, cost=cost)
    await world.store.flush([world.flush(new, rows=[odd, dear])])
    assert await usage.attempts(PROJECT, new.run.id) == [dear, odd]
    assert await world.store.attempts_of(new.run.id) == ([dear, odd], [])


async def test_attempts_of_another_project_s_run_are_not_there(world: World, usage: PostgresUsage) -> None:
    new = await started(world)
    with pytest.raises(NotFound):
        await usage.attempts(OTHER, new.run.id)


async def test_attempts_are_fenced_like_the_log(world: World, usage: PostgresUsage) -> None:
    new, kept = await started(world), await started(world)
    result = await world.store.flush(
        [world.flush(new, rows=[attempt()], epoch=0), world.flush(kept, rows=[attempt()])]
    )
    assert list(result.lost) == [new.run.id]
    assert await usage.attempts(PROJECT, new.run.id) == []
    assert await usage.attempts(PROJECT, kept.run.id) == [attempt()]


async def test_an_attempt_that_is_written_twice_counts_once(world: World, usage: PostgresUsage) -> None:
    new = await started(world)
    flush = world.flush(new, rows=[attempt()])
    await world.store.flush([flush])
    written, _ = await world.store.written([flush])
    # Nothing tells that it was written; so it is written again.
    assert not written
    again = await world.store.flush([flush])
    assert (again.lost, again.rejected) == ([], {})
    assert await usage.attempts(PROJECT, new.run.id) == [attempt()]


async def test_attempts_go_with_the_end_of_their_run(world: World, usage: PostgresUsage) -> None:
    new = await started(world)
    await world.store.flush([replace(world.end(new), rows=[attempt()])])
    assert await usage.attempts(PROJECT, new.run.id) == [attempt()]


async def test_what_the_log_tells_of_an_attempt_without_an_end(world: World) -> None:
    new = await started(world)
    voter = SessionStart(1, is_retry=False, is_fallback=False, purpose="voter", index=1)
    await world.store.flush(
        [
            world.flush(
                new,
                entry_of(StreamInit(), 2, NOW_MS, 0, 1, 0),
                TokenBlock(3, NOW_MS, 0, 1, 0, ["over"], [0]),
                entry_of(StreamInit(), 4, NOW_MS + 5, 0, 2, 0),
                TokenBlock(5, NOW_MS + 5, 0, 2, 0, ["naïve ", "🦦"], [0, 0]),
                entry_of(voter, 7, NOW_MS + 6, 1, 1, 0),
                entry_of(StreamInit(), 8, NOW_MS + 7, 1, 1, 0),
                TokenBlock(9, NOW_MS + 8, 0, 2, 0, ["!"], [0]),
                entry_of(StreamInit(), 10, NOW_MS + 9, 1, 1, 0),
                rows=[attempt(1)],
            )
        ]
    )
    begun, later = (NOW + timedelta(milliseconds=ms) for ms in (5, 7))
    assert await world.store.attempts_of(new.run.id) == (
        [attempt(1)],
        [LostAttempt(0, 0, 2, "main", 1, 8, begun), LostAttempt(1, 0, 1, "voter", 2, 0, later)],
    )


async def test_sums_are_those_of_the_attempts(world: World, usage: PostgresUsage) -> None:
    chance = random.Random(7)
    branches = [await world.branch() for _ in range(3)]
    elsewhere = await world.branch(OTHER)
    groups: dict[GroupBy, dict[str, list[NewAttempt]]] = {}
    for group_by in ("project", "day", "model", "branch", "run"):
        groups[group_by] = defaultdict(list)
    for branch in (*branches, elsewhere):
        own = branch != elsewhere
        new = await started(world, branch, **({} if own else {"project": OTHER}))
        made = [
            attempt(
                number,
                model=chance.choice(["Zed", "abc", None]),
                usage=Usage(
                    chance.randrange(99), 1, chance.choice([None, 3]), estimated=chance.random() < 0.3
                ),
                cost=chance.choice([None, Decimal(chance.randrange(10**9)).scaleb(-9)]),
                ended_at=NOW - timedelta(hours=chance.randrange(60)),
            )
            for number in range(1, 30)
        ]
        await world.store.flush([world.flush(new, rows=made)])
        for one in made if own else ():
            groups["project"][""].append(one)
            groups["day"][one.ended_at.astimezone(UTC).date().isoformat()].append(one)
            groups["model"][one.model or ""].append(one)
            groups["branch"][str(branch)].append(one)
            groups["run"][str(new.run.id)].append(one)
    span = Span(TODAY - timedelta(days=5), TODAY)
    for group_by, expected in groups.items():
        page = await usage.sums(PROJECT, group_by, span, ASCENDING)
        assert [found.key for found in page.items] == sorted(expected)
        for found in page.items:
            members = expected[found.key]
            costs = [one.cost for one in members if one.cost is not None]
            assert found.totals.attempts == len(members)
            assert found.totals.input_tokens == sum(one.usage.input_tokens for one in members)
            assert found.totals.cached_input_tokens == sum(
                one.usage.cached_input_tokens or 0 for one in members
            )
            assert found.estimated_attempts == sum(one.usage.estimated for one in members)
            assert found.totals.amount == (sum(costs) if costs else None)
            assert found.totals.unpriced == len(members) - len(costs)
    (whole,) = (await usage.sums(PROJECT, "project", span, ASCENDING)).items
    assert whole.runs == 3
    only = await usage.sums(PROJECT, "project", replace(span, branch_id=branches[0]), ASCENDING)
    assert [found.totals.attempts for found in only.items] == [29]
    foreign = await usage.sums(PROJECT, "project", replace(span, branch_id=elsewhere), ASCENDING)
    assert foreign.items == []


async def test_a_day_is_one_of_utc_and_both_ends_are_part_of_the_sum(
    world: World, usage: PostgresUsage
) -> None:
    new = await started(world)
    first = datetime(2026, 3, 29, tzinfo=UTC)
    moments = [
        *(first - timedelta(microseconds=1000), first, first + timedelta(hours=23, minutes=59)),
        first + timedelta(days=1),
    ]
    rows = [attempt(number, ended_at=moment) for number, moment in enumerate(moments, 1)]
    await world.store.flush([world.flush(new, rows=rows)])

    async def days(first: date, last: date) -> dict[str, int]:
        page = await usage.sums(PROJECT, "day", Span(first, last), ASCENDING)
        return {found.key: found.totals.attempts for found in page.items}

    assert await days(date(2026, 3, 29), date(2026, 3, 29)) == {"2026-03-29": 2}
    assert await days(date(2026, 3, 28), date(2026, 3, 30)) == {
        "2026-03-28": 1,
        "2026-03-29": 2,
        "2026-03-30": 1,
    }


@pytest.mark.parametrize("descending", [False, True])
async def test_groups_come_page_by_page(world: World, usage: PostgresUsage, descending: bool) -> None:
    new = await started(world)
    names = [None, "Zed", "a_b", "abc", "é"]
    rows = [attempt(number, model=name) for number, name in enumerate(names, 1)]
    await world.store.flush([world.flush(new, rows=rows)])
    seen: list[str] = []
    after = None
    while True:
        page = await usage.sums(PROJECT, "model", Span(TODAY, TODAY), Slice(2, descending, after))
        seen += [found.key for found in page.items]
        if not page.has_more:
            break
        after = seen[-1]
    assert seen == sorted((name or "" for name in names), reverse=descending)


async def test_what_was_spent_stays_when_a_branch_is_deleted(world: World, usage: PostgresUsage) -> None:
    new = await started(world)
    await world.store.flush([world.flush(new, rows=[attempt()])])
    await world.connection.execute("DELETE FROM branches WHERE id = $1", new.run.branch_id)
    (found,) = (await usage.sums(PROJECT, "branch", Span(TODAY, TODAY), ASCENDING)).items
    assert (found.key, found.totals.attempts) == (str(new.run.branch_id), 1)


async def test_a_day_of_a_big_project_is_found_by_an_index(world: World) -> None:
    await _many(world.connection)
    plan = await world.connection.fetch(
        "EXPLAIN SELECT sum(input_tokens) FROM attempts "
        "WHERE project_id = $1 AND ended_at >= $2 AND ended_at < $3",
        PROJECT,
        NOW - timedelta(days=10),
        NOW - timedelta(days=9),
    )
    assert any("attempts_by_time" in row[0] for row in plan), plan


async def _many(connection: asyncpg.Connection[Any]) -> None:
    """20,000 attempts over a year."""
    await connection.execute(
        "INSERT INTO attempts (run_id, stream, fallback_index, attempt, project_id, purpose, outcome, "
        "input_tokens, output_tokens, reported, estimated, started_at, ended_at) "
        "SELECT gen_random_uuid(), 0, 0, 1, $1, 'main', 'completed', 1, 1, true, false, $2, "
        "$2::timestamptz - n * interval '26 minutes' FROM generate_series(1, 20000) AS n",
        PROJECT,
        NOW,
    )
    await connection.execute("ANALYZE attempts")
