"""Pages and resumes in a log of many millions of events, with the plans that Postgres makes for them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from uuid import UUID

import asyncpg

from app.adapters.db.engine import make_engine
from app.adapters.db.log_pages import PAGE_STATEMENT
from app.adapters.db.partitions import WEEK_MS, make_partitions, week_of
from app.adapters.db.retention import sweep
from app.core.events.run import RunCompleted, RunStarted
from benchmarks.client import Address, LoadFailed, load, request
from benchmarks.figures import p50, p99
from benchmarks.stage import Stage, stage

EVENTS: Final = 10_000_000
GOAL_MS: Final = 20.0
WEEKS: Final = 8
"""How far back the runs lie, the present week among them."""
PER_RUN: Final = 50
"""Rows of `events` of a run; half of them come before its one block of tokens, and half after it."""
TOKENS: Final = 200
LONG: Final = 100_000
"""Rows of `events` of one run that is much longer than the others."""
CHUNK: Final = 10_000
"""Runs that are filled in by one statement."""
SAMPLES: Final = 300

_RUNS: Final = """
INSERT INTO runs (id, project_id, kind, status, request, created_at, started_at, ended_at, last_seq)
SELECT (lpad(to_hex($3::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8'
        || substr(md5(n::text), 4, 15))::uuid,
       (SELECT id FROM projects LIMIT 1), 'operate', 'completed', '{"instruction": "hi"}', t, t, t, $4
FROM generate_series($1::int, $2::int - 1) AS n, to_timestamp($3::bigint / 1000.0) AS t
RETURNING id"""

_EVENTS: Final = f"""
INSERT INTO events (run_id, ts, seq, type, meta)
SELECT id, $2, CASE WHEN n <= $3 / 2 THEN n ELSE n + $4 END,
       CASE WHEN n = $3 THEN {RunCompleted.code} ELSE {RunStarted.code} END,
       json_build_object('status', 'completed', 'usage', null, 'error', null,
                         'filler', repeat(md5(n::text), 2))
FROM unnest($1::uuid[]) AS r (id), generate_series(1, $3::int) AS n"""

_BLOCKS: Final = """
INSERT INTO token_blocks (run_id, ts, seq, count, stream, attempt, fallback, text, lengths, delays)
SELECT id, $2, $3::int / 2 + 1, $4, 0, 1, 0, left(repeat(md5(id::text) || ' ', 40), 5 * $4),
       decode(repeat('05', $4), 'hex'), decode(repeat('01', $4), 'hex')
FROM unnest($1::uuid[]) AS r (id)"""


@dataclass(frozen=True, slots=True)
class Filled:
    """What there is to be read."""

    runs: Sequence[UUID]
    long_run: UUID
    seconds: float


@dataclass(frozen=True, slots=True)
class Timed:
    """One kind of reading."""

    label: str
    p50_ms: float
    p99_ms: float
    most_ms: float


async def large_log(events: int, say: Callable[[str], None]) -> str:
    """Fill a log with so many rows, read it, and tell what came of it. Raises LoadFailed."""
    async with stage() as on:
        say(f"Filling in {events:,} events ...")
        filled = await _fill(on, events)
        say("Reading ...")
        timed = [*await _statements(on, filled), *await _requests(on, filled)]
        plans = await _plans(on.connection, filled)
        rows, size = await _weight(on.connection)
        dropped = await _drop(on)
    head = (
        f"{rows:,} rows of events and {len(filled.runs) + 1:,} blocks of {TOKENS} tokens in {WEEKS} weeks, "
        f"{size}; filled in {filled.seconds:.0f} s."
    )
    lines = [f"| {one.label} | {one.p50_ms:.2f} | {one.p99_ms:.2f} | {one.most_ms:.2f} |" for one in timed]
    table = [f"| Reading (p50 ≤ {GOAL_MS:g} ms) | p50 ms | p99 ms | most ms |", "|---|---|---|---|", *lines]
    return "\n\n".join([head, "\n".join(table), dropped, *plans])


async def _fill(on: Stage, events: int) -> Filled:
    began = time.monotonic()
    now_ms = int(time.time() * 1000)
    first_week = week_of(now_ms) - WEEKS + 1
    engine = make_engine(on.database_url)
    async with engine.begin() as connection:
        await make_partitions(connection, range(first_week, first_week + WEEKS))
    await engine.dispose()
    count = max(WEEKS, events // PER_RUN)
    runs: list[UUID] = []
    chunk = min(CHUNK, -(-count // WEEKS))
    for first in range(0, count, chunk):
        last = min(first + chunk, count)
        # A little after the week's beginning, so that none is of the future.
        at_ms = (first_week + first * WEEKS // count) * WEEK_MS + first
        ids = await _put(on.connection, (first, last), at_ms, PER_RUN, TOKENS)
        runs += ids
    (long_run,) = await _put(on.connection, (count, count + 1), first_week * WEEK_MS, LONG, TOKENS)
    for table in ("runs", "events", "token_blocks"):
        await on.connection.execute(f"VACUUM ANALYZE {table}", timeout=600)
    return Filled(runs, long_run, time.monotonic() - began)


async def _put(
    connection: asyncpg.Connection[Any], numbers: tuple[int, int], at_ms: int, rows: int, tokens: int
) -> list[UUID]:
    ids = [row["id"] for row in await connection.fetch(_RUNS, *numbers, at_ms, rows + tokens)]
    await connection.execute(_EVENTS, ids, at_ms, rows, tokens, timeout=600)
    await connection.execute(_BLOCKS, ids, at_ms, rows, tokens, timeout=600)
    return ids


def _reads(filled: Filled) -> dict[str, tuple[Callable[[Random], UUID], Callable[[Random], int], int]]:
    """What is read: of which run, after which event, how many."""

    def some(random: Random) -> UUID:
        return random.choice(filled.runs)

    def long(_: Random) -> UUID:
        return filled.long_run

    return {
        "first page of 100": (some, lambda _: 0, 100),
        "whole log, 1,000 at most": (some, lambda _: 0, 1_000),
        "resume in the middle of the tokens": (some, lambda r: PER_RUN // 2 + r.randint(0, TOKENS), 1_000),
        f"page of 1,000 anywhere in {LONG:,}": (long, lambda r: r.randint(0, LONG), 1_000),
    }


async def _statements(on: Stage, filled: Filled) -> list[Timed]:
    statement = await on.connection.prepare(PAGE_STATEMENT)

    def reading(run: UUID, after: int, limit: int) -> Callable[[], Awaitable[int]]:
        async def read() -> int:
            return len(await statement.fetch(run, after, limit))

        return read

    return await _timed("statement", filled, reading)


async def _requests(on: Stage, filled: Filled) -> list[Timed]:
    address: Address = on.branchline.address

    def reading(run: UUID, after: int, limit: int) -> Callable[[], Awaitable[int]]:
        asked = request(address, "GET", f"/v1/runs/{run}/events?after={after}&limit={limit}")

        async def read() -> int:
            outcome = await load(address, [asked], clients=1)
            if outcome.answers[0].status != 200:
                raise LoadFailed(f"a page is answered with {outcome.answers[0].status}")
            return len(outcome.answers[0].body)

        return read

    return await _timed("over HTTP", filled, reading)


async def _timed(
    how: str, filled: Filled, reading: Callable[[UUID, int, int], Callable[[], Awaitable[int]]]
) -> list[Timed]:
    random = Random(1)
    found = []
    for label, (run_of, after_of, limit) in _reads(filled).items():
        took = []
        for _ in range(SAMPLES):
            read = reading(run_of(random), after_of(random), limit)
            began = time.perf_counter()
            if not await read():
                raise LoadFailed(f"{label}: there was nothing")
            took.append((time.perf_counter() - began) * 1000)
        found.append(Timed(f"{label}, {how}", p50(took), p99(took), max(took)))
    return found


async def _plans(connection: asyncpg.Connection[Any], filled: Filled) -> list[str]:
    """The plans that serve every run alike: those of statements that were prepared once."""
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(f"PREPARE page (uuid, int, int) AS {PAGE_STATEMENT}")
    plans = []
    for label, (run_of, after_of, limit) in _reads(filled).items():
        random = Random(2)
        given = f"'{run_of(random)}', {after_of(random)}, {limit}"
        rows = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS) EXECUTE page ({given})")
        plan = "\n".join(row[0] for row in rows)
        plans.append(f"{label}:\n\n```\n{plan}\n```")
    return plans


async def _weight(connection: asyncpg.Connection[Any]) -> tuple[int, str]:
    """Rows of events, and what both tables of the log weigh with their indexes."""
    row = await connection.fetchrow(
        "SELECT sum(reltuples) FILTER (WHERE relname ~ '^events_w' AND reltuples > 0)::bigint AS rows, "
        "pg_size_pretty(sum(pg_total_relation_size(oid))) AS size FROM pg_class "
        "WHERE relkind = 'r' AND relname ~ '^(events|token_blocks)_w'"
    )
    assert row is not None
    return row["rows"], row["size"]


async def _drop(on: Stage) -> str:
    """Age the log until half of its weeks are over."""
    engine = make_engine(on.database_url)
    began = time.monotonic()
    days = WEEKS // 2 * 7
    swept = await sweep(engine, now_ms=int(time.time() * 1000), days=days)
    took = time.monotonic() - began
    await engine.dispose()
    return (
        f"A sweep of logs older than {days} days: {swept.weeks} weeks dropped and {swept.runs:,} logs "
        f"deleted by themselves in {took:.2f} s."
    )
