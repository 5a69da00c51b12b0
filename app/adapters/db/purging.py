"""Remove what happened on a branch, and the logs of removed runs in small transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.tables import (
    events,
    function_calls,
    idempotency_keys,
    messages,
    purged_logs,
    runs,
    token_blocks,
)
from app.core.messages import MessageKind

BATCH: Final = 100
"""Runs whose logs are removed in one transaction."""

# The id in the address of a scope, whichever of the ways to write one its client had chosen.
_NAMED: Final = sa.func.lower(
    sa.func.regexp_replace(
        sa.func.split_part(idempotency_keys.c.scope, "/", 4), "^urn:uuid:|[^0-9a-f]", "", "gi"
    )
)


async def empty(connection: AsyncConnection, branch: Any) -> None:
    """Remove messages and runs, with all that belongs to them, of a row of `branches` that is locked.

    The system message is a setting and stays; the logs are left to `forget_purged`.
    """
    said = sa.and_(messages.c.branch_id == branch.id, messages.c.kind != MessageKind.SYSTEM)
    ours = runs.c.branch_id == branch.id
    await connection.execute(
        sa.insert(purged_logs).from_select(
            ["run_id", "project_id"], sa.select(runs.c.id, runs.c.project_id).where(ours)
        )
    )
    await forget_answers(connection, branch)
    await connection.execute(sa.delete(messages).where(said))
    await connection.execute(sa.delete(runs).where(ours))


async def forget_answers(connection: AsyncConnection, branch: Any) -> None:
    """Remove kept answers to requests about the branch and its calls: they hold what was said.

    Of runs only ids are kept: repeats of those go on finding nothing.
    """
    calls = sa.select(function_calls.c.id).where(function_calls.c.branch_id == branch.id)
    named = sa.union_all(sa.select(sa.literal(branch.id, sa.Uuid)), calls).subquery("named")
    hex_of = sa.func.replace(sa.cast(named.c[0], sa.Text), "-", "")
    await connection.execute(
        sa.delete(idempotency_keys).where(
            idempotency_keys.c.project_id == branch.project_id,
            idempotency_keys.c.body.is_not(None),
            _NAMED.in_(sa.select(hex_of)),
        )
    )


async def forget_purged(connection: AsyncConnection) -> int:
    """Remove the logs of some purged runs; the number of runs, 0 when none is left. Does not commit."""
    some = sa.select(purged_logs.c.run_id).limit(BATCH).with_for_update(skip_locked=True)
    ids = list((await connection.scalars(some)).all())
    await delete_logs(connection, ids)
    await connection.execute(sa.delete(purged_logs).where(purged_logs.c.run_id == sa.any_(_array(ids))))
    return len(ids)


async def delete_logs(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """Remove the logs of runs. An array, so that only the partitions that may hold them are looked at."""
    for log in (events, token_blocks):
        await connection.execute(sa.delete(log).where(log.c.run_id == sa.any_(_array(ids))))


def _array(ids: Sequence[UUID]) -> Any:
    return sa.bindparam(None, list(ids), type_=sa.ARRAY(sa.Uuid))
