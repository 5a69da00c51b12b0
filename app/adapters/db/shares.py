"""`ports.quotas.Shares` in Postgres, on a connection of its own that is made when something is limited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg

from app.adapters.db.grouping import Group
from app.adapters.db.lane import Lane
from app.core.limits.quota import MINUTE_S
from app.core.limits.share import KEEP, Grant

_NOW = f"floor(extract(epoch FROM clock_timestamp()) / {MINUTE_S})::bigint"

# Whoever waited for the row may come with the minute before: then it is given of the row's, which has begun.
_BASE = "CASE WHEN excluded.minute > m.minute THEN 0 ELSE m.taken END"


def _granted(left: str, wanted: str) -> str:
    return f"least({left}, greatest(1, least({wanted}, {left} / {KEEP})))"


# In the first row of a quota nothing is taken yet.
_FIRST = _granted("q.requests_per_minute", "w.wanted")
_GRANTED = _granted(f"greatest(excluded.quota - {_BASE}, 0)", "excluded.granted")

# Rows are locked in one order.
_TAKE = f"""
INSERT INTO quota_minutes AS m (quota_id, minute, quota, taken, granted)
SELECT q.id, {_NOW}, q.requests_per_minute, {_FIRST}, {_FIRST}
FROM unnest($1::uuid[], $2::int[]) AS w (id, wanted) JOIN quotas q ON q.id = w.id
WHERE q.requests_per_minute IS NOT NULL ORDER BY q.id
ON CONFLICT (quota_id) DO UPDATE SET
    minute = greatest(m.minute, excluded.minute),
    quota = excluded.quota,
    taken = {_BASE} + {_GRANTED},
    granted = {_GRANTED}
RETURNING quota_id, minute, quota, granted, taken,
    ((minute + 1) * {MINUTE_S} - extract(epoch FROM clock_timestamp()))::float8 * 1000 AS ends_in_ms"""

_GIVE_BACK = """
UPDATE quota_minutes m SET taken = greatest(m.taken - w.n, 0)
FROM (SELECT q.quota_id, w.minute, w.n FROM unnest($1::uuid[], $2::bigint[], $3::int[]) AS w (id, minute, n)
      JOIN quota_minutes q ON q.quota_id = w.id ORDER BY q.quota_id FOR NO KEY UPDATE OF q) AS w
WHERE m.quota_id = w.quota_id AND m.minute = w.minute"""


class PostgresShares:
    """See the port."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """`arguments` are those of `asyncpg.connect`."""
        self._lane = Lane(arguments)
        self._asks = Group[tuple[UUID, int], Grant | None](self._take)

    async def close(self) -> None:
        """Close the connection."""
        await self._lane.close()

    async def take(self, quota_id: UUID, wanted: int) -> Grant | None:
        """See the port."""
        return await self._asks.submit((quota_id, wanted))

    async def _take(self, asks: Sequence[tuple[UUID, int]]) -> Sequence[Grant | None]:
        wanted: dict[UUID, int] = dict(asks)

        async def work(connection: asyncpg.Connection[Any]) -> dict[UUID, Grant]:
            rows = await connection.fetch(_TAKE, list(wanted), list(wanted.values()))
            return {row["quota_id"]: Grant(**{name: row[name] for name in Grant.__slots__}) for row in rows}

        given = await self._lane.run(work)
        grants: list[Grant | None] = []
        for quota_id, _ in asks:
            grant = given.get(quota_id)
            grants.append(grant)
            if grant is not None:  # whoever asks for the same at once gets nothing of it a second time
                given[quota_id] = replace(grant, granted=0)
        return grants

    async def give_back(self, unused: Mapping[UUID, tuple[int, int]]) -> None:
        """See the port."""
        minutes, numbers = zip(*unused.values(), strict=True)

        async def work(connection: asyncpg.Connection[Any]) -> None:
            await connection.execute(_GIVE_BACK, list(unused), list(minutes), list(numbers))

        await self._lane.run(work)
