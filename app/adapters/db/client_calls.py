"""Calls that clients carry out: leases of workers, and results."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db import replies
from app.adapters.db.paging import page_of, sliced
from app.adapters.db.session import Database
from app.adapters.db.tables import client_calls as table
from app.adapters.db.tables import runs
from app.core.errors import AlreadyAnswered, ArgumentsDiffer, CallLeased, CallNotWaiting, ClaimLost, NotFound
from app.ports.catalog import Once, Page, Slice
from app.ports.client_calls import Brought, Claim
from app.ports.waiting import ClientCallRecord

_JSON = ("arguments", "output", "error")
_COLUMNS = tuple(
    sa.cast(table.c[name], sa.Text).label(name) if name in _JSON else table.c[name]
    for name in ClientCallRecord.__slots__
)


class PostgresClientCalls:
    """`ports.client_calls.ClientCalls`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, project_id: UUID, filters: Mapping[str, Any], part: Slice) -> Page[ClientCallRecord]:
        """See the port."""
        query = sa.select(*_COLUMNS).where(table.c.project_id == project_id)
        for name, value in filters.items():
            query = query.where(table.c[name] == value)
        async with self._database.reading() as connection:
            rows = (await connection.execute(sliced(query, table.c.function_call_id, part))).mappings().all()
        return page_of([ClientCallRecord(**row) for row in rows], part)

    async def claim(
        self,
        project_id: UUID,
        function_call_id: UUID,
        claim: Claim,
        *,
        at: datetime,
        once: Once | None = None,
    ) -> ClientCallRecord:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            call, cancelled = await _locked(connection, project_id, function_call_id)
            _check_waiting(call, cancelled, at)
            _check_lease(call, claim.held, at)
            lease = timedelta(seconds=claim.lease_s or call.lease_s)
            made = await _changed(
                connection,
                call,
                lease_token=claim.held or claim.token,
                lease_until=min(at + lease, call.expires_at),
                leased_by=claim.by,
            )
            await replies.keep(connection, project_id, once, made)
        return made

    async def bring(
        self,
        project_id: UUID,
        function_call_id: UUID,
        brought: Brought,
        *,
        at: datetime,
        once: Once | None = None,
    ) -> ClientCallRecord:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            call, cancelled = await _locked(connection, project_id, function_call_id)
            if brought.arguments_digest not in (None, call.arguments_digest):
                raise ArgumentsDiffer("The digest is not that of the call's arguments; read the call again.")
            if call.status == "answered":
                if call.result_digest != brought.digest:
                    raise AlreadyAnswered("Another result of this call was brought before; it counts.")
                made = call
            else:
                _check_waiting(call, cancelled, at)
                _check_lease(call, brought.held, at)
                made = await _answered(connection, call, brought, at)
            await replies.keep(connection, project_id, once, made)
        return made


async def _locked(
    connection: AsyncConnection, project_id: UUID, function_call_id: UUID
) -> tuple[ClientCallRecord, bool]:
    """The call, which nobody else changes now, and whether its run is to be cancelled. Raises NotFound."""
    mine = (table.c.project_id == project_id, table.c.function_call_id == function_call_id)
    # As everybody does who writes for a run: the run's row first.
    place = sa.select(runs.c.cancel_requested_at).join(table, table.c.run_id == runs.c.id).where(*mine)
    run = (await connection.execute(place.with_for_update(key_share=True, of=runs))).first()
    if run is None:
        raise NotFound("No client is to carry out such a function call in this project.")
    query = sa.select(*_COLUMNS).where(*mine).with_for_update(key_share=True)
    return ClientCallRecord(**(await connection.execute(query)).mappings().one()), run[0] is not None


def _check_waiting(call: ClientCallRecord, cancelled: bool, at: datetime) -> None:
    """Raise CallNotWaiting; a call whose time is over, or whose run is, need not have been marked yet."""
    status = call.status
    if status == "waiting" and cancelled:
        status = "cancelled"
    elif status == "waiting" and call.expires_at <= at:
        status = "expired"
    if status != "waiting":
        words = f"The call is {status}: nobody waits for its result any more."
        raise CallNotWaiting(words, extra={"call_status": status})


def _check_lease(call: ClientCallRecord, held: UUID | None, at: datetime) -> None:
    """Raise CallLeased, ClaimLost. A lease that is over still counts, until somebody else has one."""
    if held is None and call.leased(at):
        raise CallLeased("Another worker has the call at present; take another one, or try again later.")
    if held is not None and held != call.lease_token:
        raise ClaimLost("This is not the last lease of the call: somebody else has claimed it; leave it.")


async def _answered(
    connection: AsyncConnection, call: ClientCallRecord, brought: Brought, at: datetime
) -> ClientCallRecord:
    made = await _changed(
        connection,
        call,
        status="answered",
        output=_json(brought.output),
        output_truncated=brought.truncated,
        error=_json(brought.error),
        result_digest=brought.digest,
        answered_by=brought.by,
        ended_at=at,
    )
    # Whoever holds the run meanwhile finds the mark when it comes to wait again.
    here = (runs.c.id == call.run_id, runs.c.ended_at.is_(None))
    await connection.execute(sa.update(runs).where(*here).values(ready_at=at))
    return made


async def _changed(connection: AsyncConnection, call: ClientCallRecord, **values: Any) -> ClientCallRecord:
    change = sa.update(table).where(table.c.function_call_id == call.function_call_id).values(**values)
    row = (await connection.execute(change.returning(*_COLUMNS))).mappings().one()
    return ClientCallRecord(**row)


def _json(text: str | None) -> Any:
    return sa.cast(sa.literal(text, sa.Text), sa.JSON)
