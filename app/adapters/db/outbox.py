"""`ports.webhooks.Outbox` in Postgres, on a connection of its own, so that runs never wait for deliveries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from app.adapters.db.lane import Lane
from app.adapters.db.webhooks import secret_place
from app.core.callbacks import DERIVED
from app.core.errors import CredentialUnreadable
from app.core.sealing import is_sealed
from app.ports.sealing import Vault
from app.ports.webhooks import Due, Settlement

ERROR_CHARS: Final = 500
"""Most characters that are kept of what went wrong."""

_INTERESTS = """
SELECT project_id, bool_or(cardinality(event_types) > 0 OR coalesce(callbacks && $1, false)) AS eager
FROM webhook_endpoints WHERE active GROUP BY project_id"""

# Endpoint by endpoint, in any order, so that one with a long backlog does not stand in front of the others.
_CLAIM = """
WITH endpoint AS MATERIALIZED (
    SELECT w.id, w.url, w.callbacks, w.event_types, coalesce(b.room, $3) AS room,
           CASE WHEN w.previous_until > now() THEN ARRAY[w.secret, w.previous_secret] ELSE ARRAY[w.secret] END
               AS secrets
    FROM webhook_endpoints w LEFT JOIN unnest($1::uuid[], $2::int[]) AS b (id, room) ON b.id = w.id
    WHERE w.active AND coalesce(b.room, $3) > 0 ORDER BY random()
),
due AS MATERIALIZED (
    SELECT found.* FROM endpoint w CROSS JOIN LATERAL (
        SELECT d.endpoint_id, d.run_id FROM webhook_deliveries d
        WHERE d.endpoint_id = w.id AND d.status = 'pending' AND d.next_at <= now()
        ORDER BY d.next_at LIMIT w.room FOR NO KEY UPDATE SKIP LOCKED
    ) AS found LIMIT $4
)
UPDATE webhook_deliveries d
SET epoch = d.epoch + 1, lease_until = now() + $5, next_at = now() + $5, news = false
FROM due JOIN endpoint w ON w.id = due.endpoint_id
WHERE d.endpoint_id = due.endpoint_id AND d.run_id = due.run_id
RETURNING d.endpoint_id, d.run_id, d.project_id, d.epoch, d.delivered_seq, d.post_seq, d.posts, d.failures,
          w.url, w.secrets, w.callbacks, w.event_types,
          extract(epoch FROM now() - d.created_at)::float8 AS age_s"""

# What is being seen to at this moment may have been read already: it is looked at once more afterwards. What
# is pending has no end; told by its status it would be looked for among all that is.
_TOUCH = """
UPDATE webhook_deliveries SET news = lease_until IS NOT NULL,
       next_at = CASE WHEN lease_until IS NULL THEN least(next_at, now()) ELSE next_at END
WHERE run_id = ANY($1::uuid[]) AND ended_at IS NULL AND failures = 0"""

_FIX = """
UPDATE webhook_deliveries SET post_seq = $4 WHERE endpoint_id = $1 AND run_id = $2 AND epoch = $3
RETURNING true"""

_SETTLE = """
WITH settled AS (
    UPDATE webhook_deliveries d SET
        status = $4,
        delivered_seq = $5,
        post_seq = CASE WHEN $5 > d.delivered_seq THEN NULL ELSE d.post_seq END,
        posts = $6,
        failures = $7,
        next_at = now() + CASE WHEN d.news AND $7 = 0 THEN interval '0' ELSE $8 END,
        news = false,
        lease_until = NULL,
        last_status = CASE WHEN $9::bool THEN $10 ELSE d.last_status END,
        last_error = CASE WHEN $9::bool THEN $11 ELSE d.last_error END,
        last_attempt_at = CASE WHEN $9::bool THEN now() ELSE d.last_attempt_at END,
        ended_at = CASE WHEN $4 = 'pending' THEN NULL ELSE now() END
    WHERE d.endpoint_id = $1 AND d.run_id = $2 AND d.epoch = $3
    RETURNING true
),
disabled AS (
    UPDATE webhook_endpoints
    SET active = false, disabled_at = now(), disabled_reason = $12::text, updated_at = now()
    WHERE id = $1 AND active AND $12::text IS NOT NULL AND EXISTS (SELECT FROM settled)
)
SELECT * FROM settled"""


class PostgresOutbox:
    """See the port."""

    def __init__(self, arguments: dict[str, Any], vault: Vault, *, lease_s: float) -> None:
        """`arguments` are those of `asyncpg.connect`; `lease_s` is how long a process has for one post."""
        self._lane = Lane(arguments)
        self._vault = vault
        self._lease = timedelta(seconds=lease_s)

    async def close(self) -> None:
        """Close the connection."""
        await self._lane.close()

    async def interests(self) -> Mapping[UUID, bool]:
        """See the port."""
        async with self._lane.use() as connection:
            rows = await connection.fetch(_INTERESTS, list(DERIVED))
        return {row["project_id"]: row["eager"] for row in rows}

    async def touch(self, runs: Collection[UUID]) -> None:
        """See the port."""
        async with self._lane.use() as connection:
            await connection.execute(_TOUCH, list(runs))

    async def claim(self, *, room: Mapping[UUID, int], each: int, limit: int) -> Sequence[Due]:
        """See the port."""
        async with self._lane.use() as connection:
            rows = await connection.fetch(_CLAIM, list(room), list(room.values()), each, limit, self._lease)
        return [Due(**{**row, "secrets": self._opened(row["endpoint_id"], row["secrets"])}) for row in rows]

    def _opened(self, endpoint_id: UUID, stored: Sequence[str]) -> list[str]:
        """Those that open, and those of before, when secrets were stored as they are."""
        secrets = []
        for text in stored:
            with suppress(CredentialUnreadable):
                secrets.append(self._vault.open(secret_place(endpoint_id), text) if is_sealed(text) else text)
        return secrets

    async def fix(self, due: Due, last_seq: int) -> bool:
        """See the port."""
        async with self._lane.use() as connection:
            return bool(await connection.fetchval(_FIX, due.endpoint_id, due.run_id, due.epoch, last_seq))

    async def settle(self, due: Due, settlement: Settlement) -> bool:
        """See the port."""
        answer = settlement.answer
        async with self._lane.use() as connection:
            return bool(
                await connection.fetchval(
                    _SETTLE,
                    due.endpoint_id,
                    due.run_id,
                    due.epoch,
                    settlement.status,
                    settlement.delivered_seq,
                    settlement.posts,
                    settlement.failures,
                    timedelta(seconds=settlement.pause_s),
                    answer is not None,
                    answer.status if answer else None,
                    answer.error[:ERROR_CHARS] if answer and answer.error else None,
                    settlement.disable,
                )
            )
