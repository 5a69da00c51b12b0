"""Runs, their log and their conversations in Postgres, by hand-written statements."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from app.adapters.db import attempts as counting
from app.adapters.db import flush as flushing
from app.adapters.db import leases as holding
from app.adapters.db import log_pages as reading
from app.adapters.db import waiting
from app.adapters.db.accept import SOURCES
from app.adapters.db.accepting import Accepting
from app.adapters.db.branch_states import Key, state_without_branch, states_of
from app.adapters.db.columns import RUN_COLUMNS, run_record
from app.adapters.db.grouping import Group
from app.adapters.db.histories import Histories
from app.adapters.db.lane import Lane
from app.adapters.db.run_keys import Used, recall
from app.core.errors import NotFound, RunEnded, Unavailable
from app.core.record import Entry, EventEntry
from app.ports.ambient import Clock
from app.ports.attempts import LostAttempt, NewAttempt
from app.ports.storage import (
    Acceptance,
    BranchState,
    CallRecord,
    Claimed,
    Flush,
    FlushResult,
    NewRun,
    OpenCall,
    RunRecord,
)
from app.ports.waiting import Waits

PATIENCE_S = 10.0
"""How long a statement may take before its connection counts as lost: not every end is told."""
LEASE_PATIENCE_S = 4.0
"""The same where leases are renewed, well below the length of one, and of the rest, which is small."""

# An attempt that failed ends its call only where no other was to follow: the response says so.
_OPEN_CALLS = """
SELECT id, status, call_id, function, arguments, provider_call_id, action_request_id, started_at, error
FROM function_calls c
WHERE run_id = $1
  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.action_request_id = c.action_request_id)
  AND NOT EXISTS (SELECT 1 FROM function_calls later
                  WHERE later.action_request_id = c.action_request_id AND later.attempt > c.attempt)
ORDER BY batch, index"""


def told(refusal: asyncpg.PostgresError) -> str:
    """What the database objects to, without the data: that is what users said, and this goes into the log."""
    constraint = getattr(refusal, "constraint_name", None)
    return f"{refusal.sqlstate} {type(refusal).__name__}" + (f" ({constraint})" if constraint else "")


class PostgresRuns:
    """`ports.storage.RunStore`."""

    def __init__(
        self,
        arguments: dict[str, Any],
        *,
        owner: UUID,
        lease_ms: int,
        clock: Clock,
        history_bytes: int = 0,
        counts_usage: Callable[[], bool] = lambda: True,
    ) -> None:
        """`owner` names this process in leases; `arguments` are those of `asyncpg.connect`.

        Of the conversations that were read last, about `history_bytes` are kept in memory. `counts_usage`
        says whether any key or project has a limit on what attempts use: looking for that takes time.
        """
        self._counts_usage = counts_usage
        self._owner = owner
        self._lease = timedelta(milliseconds=lease_ms)
        self._clock = clock
        # Leases stand in nobody's way and wait for nobody: what clients ask for may come by the hundred.
        types = [rows.type for rows in SOURCES]
        self._write = Lane(arguments, command_timeout_s=PATIENCE_S, types=types)
        self._accept = Lane(arguments, command_timeout_s=PATIENCE_S, types=types)
        self._read = Lane(arguments, command_timeout_s=PATIENCE_S)
        self._rest = Lane(arguments, command_timeout_s=LEASE_PATIENCE_S)
        self._leases = Lane(arguments, command_timeout_s=LEASE_PATIENCE_S)
        self._lanes = (self._write, self._accept, self._read, self._rest, self._leases)
        self._histories = Histories(history_bytes)
        self._accepting = Accepting(self._accept, owner=owner, lease=self._lease)
        self._keys = Group[Used, UUID | None](self._key_batch)
        self._states = Group[Key, BranchState](self._state_batch)
        self._runs = Group[tuple[UUID, UUID], RunRecord](self._run_batch)
        self._pages = Group[tuple[UUID, int, int], Sequence[Entry]](self._page_batch, limit=32)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)

    async def open(self) -> None:
        """Connect now what would else connect when it is needed; a database that is away is left for then."""
        for lane in self._lanes:
            with contextlib.suppress(Unavailable):
                async with lane.use():
                    pass

    async def close(self) -> None:
        """Close the connections."""
        for lane in self._lanes:
            await lane.close()

    # Accepting

    async def remembered(self, project_id: UUID, idempotency: tuple[str, str, bytes]) -> UUID | None:
        """See the port."""
        return await self._keys.submit(Used(project_id, *idempotency))

    async def _key_batch(self, asked: Sequence[Used]) -> Sequence[UUID | BaseException | None]:
        async with self._read.use() as connection:
            return await recall(connection, asked)

    async def accept(self, new: NewRun) -> Acceptance:
        """See the port."""
        return await self._accepting.submit(new)

    # Writing

    async def flush(self, flushes: Sequence[Flush]) -> FlushResult:
        """See the port."""
        try:
            return await self._flush_together(flushes)
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as refusal:
            if len(flushes) == 1:
                return FlushResult(rejected={flushes[0].run_id: told(refusal)})
        results = [await self.flush([one]) for one in flushes]
        return FlushResult(
            lost=[run for result in results for run in result.lost],
            rejected={run: why for result in results for run, why in result.rejected.items()},
            started=[run for result in results for run in result.started],
        )

    async def _flush_together(self, flushes: Sequence[Flush]) -> FlushResult:
        async def work(connection: asyncpg.Connection[Any]) -> FlushResult:
            return await flushing.write(
                connection,
                flushes,
                owner=self._owner,
                lease=self._lease,
                now=self._now(),
                counting=self._counts_usage(),
            )

        return await self._write.run(work)

    async def written(self, flushes: Sequence[Flush]) -> tuple[Collection[UUID], Sequence[RunRecord]]:
        """See the port."""
        async with self._write.use() as connection:
            return await flushing.outcome(connection, flushes, owner=self._owner)

    # Reading

    async def branch_state(
        self, project_id: UUID, branch_id: UUID, *, conversation: bool = True
    ) -> BranchState:
        """See the port."""
        return await self._states.submit(Key(project_id, branch_id, conversation))

    async def _state_batch(self, keys: Sequence[Key]) -> Sequence[BranchState | BaseException]:
        async with self._read.use() as connection:
            return await states_of(connection, self._histories, keys)

    async def no_branch_state(self, project_id: UUID) -> BranchState:
        """See the port."""
        async with self._rest.use() as connection:
            return await state_without_branch(connection, project_id)

    async def require_branch(self, project_id: UUID, branch_id: UUID) -> None:
        """See the port."""
        async with self._rest.use() as connection:
            found = await connection.fetchval(
                "SELECT true FROM branches WHERE id = $1 AND project_id = $2", branch_id, project_id
            )
        if not found:
            raise NotFound("There is no such branch in this project.")

    async def run(self, project_id: UUID, run_id: UUID) -> RunRecord:
        """See the port."""
        return await self._runs.submit((project_id, run_id))

    async def _run_batch(self, keys: Sequence[tuple[UUID, UUID]]) -> Sequence[RunRecord | BaseException]:
        ids = list({run for _, run in keys})
        async with self._rest.use() as connection:
            rows = await connection.fetch(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ANY($1::uuid[])", ids)
            calls = await connection.fetch(
                "SELECT run_id, id FROM function_calls WHERE run_id = ANY($1::uuid[]) "
                "ORDER BY run_id, batch, index, attempt",
                ids,
            )
        found = {row["id"]: run_record(row) for row in rows}
        for call in calls:
            record = found.get(call["run_id"])
            if record is not None:
                record.function_calls = [*record.function_calls, call["id"]]
        return [
            record
            if (record := found.get(run_id)) is not None and record.project_id == project_id
            else NotFound("There is no such run in this project.")
            for project_id, run_id in keys
        ]

    async def last_seq(self, run_id: UUID) -> int:
        """See the port."""
        async with self._rest.use() as connection:
            found = await reading.last_seqs(connection, [run_id])
        return found[run_id]

    async def standings(self, runs: Sequence[UUID]) -> Mapping[UUID, tuple[int, str]]:
        """See the port."""
        async with self._read.use() as connection:
            return await reading.standings(connection, runs)

    async def page(self, run_id: UUID, *, after: int, limit: int) -> Sequence[Entry]:
        """See the port."""
        return await self._pages.submit((run_id, after, limit))

    async def _page_batch(self, asked: Sequence[tuple[UUID, int, int]]) -> Sequence[Sequence[Entry]]:
        # A reader that goes away in the middle must not take the connection with it; and many that follow one
        # run ask for the same.
        found: dict[tuple[UUID, int, int], Sequence[Entry]] = {}
        async with self._read.use() as connection:
            for run_id, after, limit in dict.fromkeys(asked):
                found[run_id, after, limit] = await reading.page(connection, run_id, after, limit)
        return [found[ask] for ask in asked]

    # Leases

    async def renew(self, leases: Mapping[UUID, int]) -> tuple[Sequence[UUID], Sequence[UUID]]:
        """See the port."""
        async with self._leases.use() as connection:
            return await holding.renew(connection, leases, self._lease)

    async def claim(self, limit: int, *, lost: bool = True) -> Claimed:
        """See the port."""
        async with self._leases.use() as connection:
            claimed = await holding.claim(
                connection, limit, owner=self._owner, lease=self._lease, now=self._now(), lost=lost
            )
            held = [*claimed.orphans, *claimed.given_up, *claimed.started, *claimed.woken]
            if held:
                last = await reading.last_seqs(connection, [record.id for record in held])
                for record in held:
                    record.last_seq = last[record.id]
        return claimed

    async def release(self, leases: Mapping[UUID, int]) -> None:
        """See the port."""
        async with self._leases.use() as connection:
            await holding.release(connection, leases)

    async def give_back(self, runs: Sequence[RunRecord]) -> None:
        """See the port."""
        async with self._leases.use() as connection:
            await holding.give_back(connection, runs)

    async def expire(self, *, at: datetime, expired: EventEntry) -> Sequence[UUID]:
        """See the port."""
        async with self._leases.use() as connection:
            return await holding.expire(connection, at=at, expired=expired)

    async def open_calls(self, run_id: UUID) -> Sequence[OpenCall]:
        """See the port."""
        async with self._rest.use() as connection:
            rows = await connection.fetch(_OPEN_CALLS, run_id)
        return [OpenCall(**dict(row)) for row in rows]

    async def calls_of(self, run_id: UUID) -> Sequence[CallRecord]:
        """See the port."""
        async with self._rest.use() as connection:
            return await waiting.calls_of(connection, run_id)

    async def attempts_of(self, run_id: UUID) -> tuple[Sequence[NewAttempt], Sequence[LostAttempt]]:
        """See `ports.attempts.AttemptLog`."""
        async with self._rest.use() as connection:
            return await counting.of_run(connection, run_id)

    async def settled_waits(self, run_id: UUID, epoch: int, *, close: bool = False) -> Waits:
        """See the port."""

        async def work(connection: asyncpg.Connection[Any]) -> Waits:
            async with connection.transaction():
                return await waiting.settled(connection, run_id, epoch, at=self._now(), close=close)

        return await self._rest.run(work)

    async def request_cancel(
        self, project_id: UUID, run_id: UUID, *, at: datetime, cancelled: EventEntry
    ) -> RunRecord:
        """See the port."""

        async def work(connection: asyncpg.Connection[Any]) -> RunRecord:
            async with connection.transaction():
                row = await connection.fetchrow(
                    f"SELECT {RUN_COLUMNS} FROM runs WHERE id = $1 AND project_id = $2 FOR NO KEY UPDATE",
                    run_id,
                    project_id,
                )
                if row is None:
                    raise NotFound("There is no such run in this project.")
                record = run_record(row)
                if record.ended:
                    raise RunEnded(f"The run has already ended: it is {record.status}.")
                if record.status != "queued":
                    # A run that waits, or comes to, is taken up, to be ended by whoever takes it.
                    await connection.execute(
                        "UPDATE runs SET cancel_requested_at = coalesce(cancel_requested_at, $2), "
                        "ready_at = $2 WHERE id = $1",
                        run_id,
                        at,
                    )
                    return record
                seq = 1 + await connection.fetchval(
                    "SELECT coalesce(max(seq), 0) FROM events WHERE run_id = $1", run_id
                )
                await connection.execute(
                    "INSERT INTO events (run_id, ts, seq, type, meta) VALUES ($1, $2, $3, $4, $5)",
                    run_id,
                    cancelled.ts,
                    seq,
                    cancelled.code,
                    cancelled.meta,
                )
                row = await connection.fetchrow(
                    "UPDATE runs SET status = 'cancelled', cancel_requested_at = $2, ended_at = $2, "
                    f"last_seq = $3 WHERE id = $1 RETURNING {RUN_COLUMNS}",
                    run_id,
                    at,
                    seq,
                )
                return run_record(row)

        return await self._rest.run(work)
