"""Accept runs: many in one statement where they can start at once, one by one where they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any
from uuid import UUID

import asyncpg

from app.adapters.db import replacing, run_keys
from app.adapters.db.allowed import count_run
from app.adapters.db.parts import WRITTEN, Kinds, common, rows_of
from app.adapters.db.sources import Source
from app.core.errors import (
    BranchBusy,
    NotFound,
    PreconditionFailed,
    QueueFull,
)
from app.core.record import Entry
from app.ports.storage import Acceptance, Accepted, Flush, NewRun, Replayed, Row, RunRecord, Stale

MAX_QUEUED = 1000
"""Runs that may wait for one branch."""
MAX_QUEUED_IN_PROJECT = 10_000
"""Runs that may be queued in all branches of a project, about: acceptances do not wait for each other."""
GROUP = 64
"""Runs that are accepted together at most."""
FIRST_EPOCH = 1

_ASKED = Source(
    "new_run",
    "id uuid, project_id uuid, branch_id uuid, kind text, request json, context json, key_id uuid, "
    "request_id text, traceparent text, model text, version int, position int, if_match int, "
    "created_at timestamptz",
)

# What webhook endpoints are owed stands with the run: none is missed, and no later commit has to think of it.
_OWED = """
owed AS (
    INSERT INTO webhook_deliveries (endpoint_id, run_id, project_id)
    SELECT w.id, r.id, r.project_id FROM fence r JOIN webhook_endpoints w ON w.project_id = r.project_id
    WHERE w.active
)"""

# The branch row is locked first, as everybody does who decides whether a branch is busy. A run that was
# prepared on another state of the branch, or that would overtake a queued one, is left out. A run without a
# branch has nothing to wait for. What is queued is asked for as a value, for NOT EXISTS is a join, and while
# nothing is queued anywhere reading all of it looks as good as looking it up.
_START = f"""WITH RECURSIVE asked AS (SELECT * FROM {{rows}}),
free AS MATERIALIZED (
    SELECT a.* FROM asked a JOIN branches b ON b.id = a.branch_id AND b.project_id = a.project_id
    WHERE b.version = a.version AND b.next_position = a.position
      AND (a.if_match IS NULL OR a.if_match = b.version)
      AND (SELECT q.id FROM runs q WHERE q.branch_id = a.branch_id AND q.status = 'queued' LIMIT 1) IS NULL
    ORDER BY a.branch_id, a.id FOR NO KEY UPDATE OF b
),
ready AS (SELECT * FROM free UNION ALL SELECT a.* FROM asked a WHERE a.branch_id IS NULL),
fence AS (
    INSERT INTO runs (id, project_id, branch_id, kind, status, request, context, key_id, request_id,
                      traceparent, model, epoch, owner, lease_until, created_at, started_at)
    SELECT id, project_id, branch_id, kind, 'running', request, context, key_id, request_id,
           traceparent, model, {FIRST_EPOCH}, $1, now() + $2::interval, created_at, created_at FROM ready
    ON CONFLICT (branch_id) WHERE status IN ('running', 'waiting') DO NOTHING
    RETURNING id, project_id
),
{_OWED}"""

_INTO_QUEUE = f"""fence AS (
    INSERT INTO runs (id, project_id, branch_id, kind, status, request, context, key_id, request_id,
                      traceparent, model, created_at, expires_at, last_seq)
    SELECT id, project_id, branch_id, kind, 'queued', request, context, key_id, request_id,
           traceparent, model, created_at, $1, $2 FROM asked
    RETURNING id, project_id
),
{_OWED}"""

_QUEUE = f"WITH RECURSIVE asked AS (SELECT * FROM {{rows}}),\n{_INTO_QUEUE}"

# Those that have no condition but a place in the queue; the others are left out, to be told what is wrong.
# The members of a group do not see each other: the last places of a queue are given one by one.
_LINE_UP = f"""WITH RECURSIVE asked AS (
    SELECT w.* FROM {{rows}} LEFT JOIN branches b ON b.id = w.branch_id AND b.project_id = w.project_id
    WHERE w.if_match IS NULL AND (w.branch_id IS NULL OR b.id IS NOT NULL
      AND (SELECT count(*) FROM (
            SELECT 1 FROM runs q WHERE q.branch_id = w.branch_id AND q.status = 'queued' LIMIT {MAX_QUEUED}
      ) AS ahead) < {MAX_QUEUED - GROUP})
),
{_INTO_QUEUE}"""


_AHEAD = """
SELECT (array_agg(id) FILTER (WHERE status IN ('running', 'waiting')))[1] AS active,
       count(*) FILTER (WHERE status = 'queued') AS waiting,
       (SELECT count(*) FROM (
            SELECT FROM runs WHERE project_id = $2 AND status = 'queued' AND expires_at IS NOT NULL LIMIT $3
       ) AS q) AS in_project
FROM runs WHERE branch_id = $1 AND status IN ('running', 'waiting', 'queued')"""


SOURCES = (_ASKED, run_keys.ROWS, *WRITTEN)
"""All rows that are written here or by `parts`."""


@cache
def _storing(runs: str, parts: Kinds, *, keyed: bool) -> str:
    """Store runs, with their keys where they are `keyed`, and with rows of these parts; gives the ids of
    those that were stored.

    Its parameters: two of `runs`, the runs, the keys, and the rows of each part.
    """
    keys = f",\n{run_keys.KEPT.format(rows=run_keys.ROWS.table(4))}" if keyed else ""
    ctes, _ = common(parts, 5 if keyed else 4, in_order=True)
    return f"{runs.format(rows=_ASKED.table(3))}{keys}{ctes} SELECT id FROM fence"


_ASKED_MEMBERS = attrgetter(
    *("run.id", "run.project_id", "run.branch_id", "run.kind", "run.request", "run.context", "run.key_id"),
    *("run.request_id", "run.traceparent", "run.model", "seen_version", "seen_position", "if_match"),
    "run.created_at",
)


async def start_all(
    connection: asyncpg.Connection[Any],
    news: Sequence[NewRun],
    *,
    owner: UUID,
    lease: Any,
    keyed: bool = True,
) -> set[UUID]:
    """Store those that can start at once, with all that they begin with; their ids.

    Their idempotency keys are used with that, unless `keyed` says that they are already. Raises
    UniqueViolationError for one that is.
    """
    firsts = [_first(new.run, new.entries, new.rows) for new in news]
    return await _store(connection, _START, (owner, lease), news, firsts, keyed=keyed)


async def line_up(connection: asyncpg.Connection[Any], news: Sequence[NewRun]) -> set[UUID]:
    """Store runs for other processes to take up, as far as nothing has to be asked; their ids."""
    simple = [new for new in news if new.if_busy == "enqueue"]
    if not simple:
        return set()
    firsts = [_first(new.run, new.queued, ()) for new in simple]
    expires = max((new.run.expires_at for new in simple if new.run.expires_at), default=None)
    return await _store(connection, _LINE_UP, (expires, 1), simple, firsts, keyed=True)


# One that queued may have been handed over to this very process meanwhile, which has begun it then, and under
# the same epoch: what queues has a time at which that is over. The lease may have run out meanwhile; it is
# taken anew, so that nobody takes the run over between this look and its beginning.
_OUTCOME = f"""WITH held AS (
    UPDATE runs SET lease_until = now() + $3::interval
    WHERE id = ANY($1::uuid[]) AND status = 'running' AND owner = $2 AND epoch = {FIRST_EPOCH}
      AND expires_at IS NULL
    RETURNING id
)
SELECT r.id, r.replaces, h.id IS NOT NULL AS held FROM runs r LEFT JOIN held h ON h.id = r.id
WHERE r.id = ANY($1::uuid[])"""


async def outcome(
    connection: asyncpg.Connection[Any], news: Sequence[NewRun], *, owner: UUID, lease: Any
) -> dict[UUID, Accepted]:
    """What became of acceptances whose connection broke, perhaps between commit and answer.

    Those that took place; one is running where it was started at once, and is still this process's own.
    """
    rows = await connection.fetch(_OUTCOME, [new.run.id for new in news], owner, lease)
    return {row["id"]: Accepted(running=row["held"], replaces=row["replaces"]) for row in rows}


async def _queue(connection: asyncpg.Connection[Any], new: NewRun) -> None:
    run = new.run
    first = _first(run, new.queued, ())
    await _store(connection, _QUEUE, (run.expires_at, len(new.queued)), [new], [first], keyed=False)


async def _store(
    connection: asyncpg.Connection[Any],
    runs: str,
    values: tuple[Any, Any],
    news: Sequence[NewRun],
    firsts: Sequence[Flush],
    *,
    keyed: bool,
) -> set[UUID]:
    """Store runs by one of the statements above, which is given `values`; the ids of those that it stored."""
    keys = [(*run_keys.used(new), new.run.id) for new in news if keyed and new.idempotency is not None]
    parts = rows_of(firsts, max(new.run.created_at for new in news))
    rows = [list(map(_ASKED_MEMBERS, news)), *([keys] if keys else []), *parts.values()]
    statement = _storing(runs, tuple(parts), keyed=bool(keys))
    return {row["id"] for row in await connection.fetch(statement, *values, *rows)}


def _first(run: RunRecord, entries: Sequence[Entry], rows: Sequence[Row]) -> Flush:
    return Flush(run.id, run.project_id, run.branch_id, FIRST_EPOCH, entries, rows)


async def accept_one(
    connection: asyncpg.Connection[Any], new: NewRun, *, owner: UUID, lease: Any
) -> Acceptance:
    """Store one run in a transaction of its own, with all that may stand in its way told apart."""
    async with connection.transaction():
        if new.idempotency is not None:
            used_for = await run_keys.use(connection, run_keys.used(new), new.run.id)
            if used_for is not None:
                return Replayed(used_for)
        limits = await count_run(connection, new.quotas, new.run.id) if new.quotas else ()
        if new.run.branch_id is None:
            if new.starts:
                await start_all(connection, [new], owner=owner, lease=lease, keyed=False)
            else:
                await _queue(connection, new)
            return Accepted(running=new.starts, limits=limits)
        replaced = await replacing.active(connection, new) if new.if_busy in replacing.ENDING else None
        row = await connection.fetchrow(
            "SELECT version, next_position FROM branches WHERE id = $1 AND project_id = $2 FOR NO KEY UPDATE",
            new.run.branch_id,
            new.run.project_id,
        )
        if row is None:
            raise NotFound("There is no such branch in this project.")
        if new.if_match is not None and row["version"] != new.if_match:
            raise PreconditionFailed(
                f"The branch is at version {row['version']}, and If-Match names another; read it again."
            )
        if new.starts and await start_all(connection, [new], owner=owner, lease=lease, keyed=False):
            return Accepted(running=True, limits=limits)
        await _line_up(connection, new, replaced)
        return Accepted(running=False, limits=limits, replaces=replaced)


async def _line_up(connection: asyncpg.Connection[Any], new: NewRun, replaced: UUID | None) -> None:
    """Queue a run on a branch that is not free, if it may be; `replaced` is the run whose place it takes."""
    ahead = await connection.fetchrow(_AHEAD, new.run.branch_id, new.run.project_id, MAX_QUEUED_IN_PROJECT)
    assert ahead is not None
    busy = ahead["active"] is not None or ahead["waiting"]
    if new.starts and not busy:
        # Rolls back the idempotency record too: nothing was accepted yet.
        raise _StaleInside
    if new.if_busy == "reject" and busy:
        raise BranchBusy("Another run is active on this branch; wait for its end, or let this one queue.")
    if new.if_busy in replacing.ENDING and ahead["active"] != replaced:
        raise _StaleInside  # another run has got the branch meanwhile: it is that one's turn to end
    if ahead["waiting"] >= MAX_QUEUED:
        raise QueueFull(f"{ahead['waiting']} runs wait for this branch already; try again later.")
    if ahead["in_project"] >= MAX_QUEUED_IN_PROJECT:
        raise QueueFull(f"{ahead['in_project']} runs wait in this project already; try again later.")
    await _queue(connection, new)
    if replaced is not None:
        await replacing.end(connection, new, replaced)


class _StaleInside(Exception):
    """The run was prepared on an older state of the branch, or another is active on it by now."""


async def accept_alone(
    connection: asyncpg.Connection[Any], new: NewRun, *, owner: UUID, lease: Any
) -> Acceptance:
    """`accept_one`, with a stale run as a value."""
    try:
        return await accept_one(connection, new, owner=owner, lease=lease)
    except _StaleInside:
        return Stale()
