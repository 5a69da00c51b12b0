"""Answers to requests with an Idempotency-Key, kept in the transaction that does the work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.session import Database
from app.adapters.db.tables import idempotency_keys as kept
from app.core.errors import Conflict, KeyReused
from app.ports.catalog import Once
from app.ports.replies import AnsweredBefore

KEPT_FOR = timedelta(hours=24)
"""How long a repeat is recognized at least."""


async def claim(connection: AsyncConnection, project_id: UUID, once: Once | None) -> None:
    """Take the key for this transaction. Raises AnsweredBefore, KeyReused.

    Waits for a transaction that is using the same key at this moment.
    """
    if once is None:
        return
    taken = await connection.execute(
        insert(kept)
        .values(project_id=project_id, scope=once.scope, key=once.key, fingerprint=once.fingerprint)
        .on_conflict_do_nothing()
    )
    if taken.rowcount:
        return
    await _recall(connection, project_id, once)
    raise Conflict("The idempotency key was in use a moment ago; try again.")


async def _recall(connection: AsyncConnection, project_id: UUID, once: Once) -> None:
    """Return if there is no answer. Raises AnsweredBefore, KeyReused."""
    mine = (kept.c.project_id == project_id, kept.c.scope == once.scope, kept.c.key == once.key)
    query = sa.select(kept.c.fingerprint, kept.c.status, sa.cast(kept.c.body, sa.Text).label("body"))
    row = (await connection.execute(query.where(*mine))).one_or_none()
    if row is None or row.status is None:
        return
    if row.fingerprint != once.fingerprint:
        raise KeyReused(
            "This Idempotency-Key was used with another request; use a new key for a new request."
        )
    raise AnsweredBefore(row.status, row.body.encode())


class PostgresReplies:
    """`ports.replies.Replies`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def recall(self, project_id: UUID, once: Once) -> None:
        """See the port."""
        async with self._database.reading() as connection:
            await _recall(connection, project_id, once)


async def forget_old(connection: AsyncConnection) -> int:
    """Remove records older than a day, those of runs too; returns their number. Does not commit."""
    age = sa.func.now() - KEPT_FOR
    return (await connection.execute(sa.delete(kept).where(kept.c.created_at < age))).rowcount


async def keep(connection: AsyncConnection, project_id: UUID, once: Once | None, made: Any) -> None:
    """Keep the answer for as long as the key lives."""
    if once is None:
        return
    status, body = once.answer(made)
    await connection.execute(
        sa.update(kept)
        .where(kept.c.project_id == project_id, kept.c.scope == once.scope, kept.c.key == once.key)
        .values(status=status, body=sa.cast(sa.literal(body.decode(), sa.Text), sa.JSON))
    )
