"""Hot statements find rows by keys, also where they were planned while the tables were empty."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db import accept, allowed, exporting, flush, leases, log_pages, run_keys, waiting
from app.adapters.db.branch_states import Key, states_of
from app.adapters.db.histories import Histories
from app.adapters.db.lane import Lane
from app.adapters.db.parts import FENCED
from app.core.events.run import RunStarted
from app.ports.storage import Flush, NewCall, NewMessage
from app.ports.waiting import WaitClosed
from app.services.entries import entry_of
from tests.adapters.db.test_groups import answers_to, calls_of
from tests.adapters.db.test_run_store import NOW, OWNER, PROJECT, World, world
from tests.support.ambient import NOW_MS

pytestmark = pytest.mark.anyio

__all__ = ["world"]

LEASE: Final = timedelta(minutes=1)
_SMALL = {"projects", "webhook_endpoints", "quotas", "quota_minutes"}
"""Tables that stay so: they have a row for each project or key, at most."""
_PREPARED: Final = """
SELECT name, statement, cardinality(parameter_types), custom_plans FROM pg_prepared_statements
WHERE statement ~ 'FROM|UPDATE|INTO' AND statement !~ 'pg_(prepared|catalog)'"""

_FIRST_COLUMNS: Final = """
SELECT i.indexrelid::regclass::text, a.attname FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"""

Node = Mapping[str, Any]


@pytest.fixture
async def lane(world: World) -> AsyncIterator[Lane]:
    """A lane to the world's database."""
    made = Lane(world.arguments)
    yield made
    await made.close()


@pytest.fixture
async def connection(lane: Lane) -> AsyncIterator[asyncpg.Connection[Any]]:
    """The lane's."""
    async with lane.use() as connection:
        yield connection


def below(node: Node) -> Iterator[Node]:
    """A node of a plan, and those that it is fed by."""
    yield node
    for inner in node.get("Plans", ()):
        yield from below(inner)


def found_by(node: Node) -> tuple[str, str] | None:
    """The table that a node reads if it grows, or its index, and by what it finds rows there."""
    name = node.get("Relation Name") or node.get("Index Name")
    if name is None or name in _SMALL or node["Node Type"] in ("Bitmap Heap Scan", "ModifyTable"):
        return None
    return name.partition("_w")[0], node.get("Index Cond", "")


def compared(node: Node) -> bool:
    """Whether a node compares each row of a table with each of something else."""
    joins = node["Node Type"] == "Nested Loop" and "Join Filter" in node
    return joins and any(map(found_by, node["Plans"]))


async def plans(connection: asyncpg.Connection[Any]) -> list[tuple[list[Node], str]]:
    """The nodes of the plans of what the connection has prepared, each with the statement."""
    out: list[tuple[list[Node], str]] = []
    for name, statement, count, anew in await connection.fetch(_PREPARED):
        assert anew == 0, f"planned for its values: {statement}"
        nulls = f"({', '.join(['NULL'] * count)})" if count else ""
        (told,) = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT json) EXECUTE {name}{nulls}"))
        out.append((list(below(told["Plan"])), statement))
    return out


async def scans(connection: asyncpg.Connection[Any]) -> list[tuple[str, str, str]]:
    """How the statements that the connection has prepared read tables, each with the statement."""
    told = await plans(connection)
    return [(*found, statement) for nodes, statement in told for node in nodes if (found := found_by(node))]


@pytest.mark.parametrize("count", [1, 2, 6])
@pytest.mark.parametrize("known", [0, 50], ids=["empty", "small"])
async def test_no_table_that_grows_is_read_whole(
    world: World, connection: asyncpg.Connection[Any], count: int, known: int
) -> None:
    """Planned while the tables are empty, or while their statistics say that they are small."""
    for _ in range(known):
        key = ("s", str(world.ids.new()), b"f")
        await world.store.accept(world.run(await world.branch(), idempotency=key))
    if known:
        await world.connection.execute("ANALYZE branches, runs, events, idempotency_keys, function_calls")
    news = [world.run(await world.branch(), idempotency=("s", str(n), b"f")) for n in range(count)]
    states = [Key(PROJECT, new.run.branch_id, True) for new in news if new.run.branch_id]
    await states_of(connection, Histories(0), states)
    await run_keys.recall(connection, [run_keys.used(new) for new in news])
    taken = await accept.start_all(connection, news, owner=OWNER, lease=LEASE)
    assert taken == {new.run.id for new in news}
    calls = [calls_of(world, 2) for _ in news]

    async def write(flushes: Sequence[Flush]) -> None:
        result = await flush.write(connection, flushes, owner=OWNER, lease=LEASE, now=NOW)
        assert not result.lost

    begun = entry_of(RunStarted(), 2, NOW_MS)
    await write([world.flush(new, begun, rows=rows) for new, rows in zip(news, calls, strict=True)])
    ends = [world.end(new, seq=3) for new in news]
    for end, rows in zip(ends, calls, strict=True):
        end.rows = [*answers_to(world, rows), NewMessage(world.ids.new(), "assistant_response", "{}")]
    await write(ends)
    ids = [new.run.id for new in news]
    await leases.renew(connection, dict.fromkeys(ids, 1), LEASE)
    await log_pages.page(connection, ids[0], 0, 10)
    await log_pages.last_seqs(connection, ids)
    await log_pages.standings(connection, ids)
    later = [world.run(new.run.branch_id, if_busy="enqueue") for new in news]
    await accept.line_up(connection, later)
    for new in (world.run(news[0].run.branch_id), world.run(await world.branch())):
        await accept.accept_one(connection, new, owner=OWNER, lease=LEASE)
    await allowed.count_run(connection, [PROJECT], news[0].run.id)
    closed = [WaitClosed(row.id, NOW) for rows in calls for row in rows if isinstance(row, NewCall)]
    await waiting.write(connection, [world.flush(news[0], rows=closed)], [], NOW)
    await waiting.settled(connection, ids[0], 1, at=NOW, close=True)
    await leases.release(connection, dict.fromkeys(ids, 1))
    await leases.give_back(connection, [new.run for new in news])

    read = await scans(connection)
    assert {table for table, _, _ in read} >= {"runs", "branches", "messages", "events", "idempotency_keys"}
    assert [scan for scan in read if not scan[1]] == []
    told = await plans(connection)
    assert [statement for nodes, statement in told if any(map(compared, nodes))] == []
    if not known:
        # Indexes of so few rows cost the same, also where only a later column is known.
        first = dict(await connection.fetch(_FIRST_COLUMNS))
        nodes = [node for nodes, _ in told for node in nodes if found_by(node)]
        assert [n for n in nodes if f"{first[n['Index Name']]} " not in n["Index Cond"]] == []
    # Rows are looked up in the fence: compared with it one by one they would be rows times runs.
    fenced = [nodes for nodes, statement in told if FENCED in statement]
    assert fenced
    assert all("hashed" in json.dumps(nodes) for nodes in fenced)


@pytest.mark.parametrize("count", [1, 2, 6])
async def test_who_looks_for_work_reads_no_more_than_what_waits(
    world: World, connection: asyncpg.Connection[Any], count: int
) -> None:
    news = [world.run(await world.branch(), starts=False) for _ in range(count)]
    await accept.line_up(connection, news)
    claimed = await leases.claim(connection, count, owner=OWNER, lease=LEASE, now=NOW, lost=True)
    assert {run.id for run in claimed.started} == {new.run.id for new in news}
    told = await plans(connection)
    whole = {n["Index Name"] for nodes, _ in told for n in nodes if (by := found_by(n)) and not by[1]}
    assert whole <= {"runs_line", "runs_queued_in_project", "runs_queue", "runs_leases", "runs_waiting"}
    targets = [n for nodes, _ in told for n in nodes if n.get("Alias") == "r" and found_by(n)]
    assert targets
    assert all("id = " in n["Index Cond"] for n in targets)
    assert [statement for nodes, statement in told if any(map(compared, nodes))] == []


async def test_a_page_of_an_export_begins_where_the_last_has_ended(
    world: World, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = world.run(await world.branch())
    await world.store.accept(new)
    await world.store.flush([world.end(new)])
    assert new.run.branch_id is not None
    monkeypatch.setattr(exporting, "Lane", lambda _: lane)
    exports = exporting.PostgresExports(world.arguments, world.ids)
    mark = await exports.mark(PROJECT, new.run.branch_id)
    for after in (None, UUID(int=0)):
        assert await exports.branches(PROJECT, after=after, limit=1) == [new.run.branch_id]
        assert [told.place for told in await exports.runs(mark, after=after, limit=1)] == [new.run.id]
        assert await exports.lone_runs(PROJECT, after=after, limit=1) == []
        assert await exports.calls(new.run.id, after=after, limit=1) == []
    async with lane.use() as connection:
        read = await scans(connection)
    # The calls of a run are few, and are found by the run.
    begun = Counter(table for table, found, _ in read if "id > COALESCE" in found)
    assert begun == {"branches": 1, "runs": 2}
