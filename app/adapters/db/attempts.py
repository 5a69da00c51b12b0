"""Read what attempts at models used and cost, and what the log tells of those that have no row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from app.core.events.session import SessionStart, StreamInit
from app.core.usage.counts import Usage
from app.ports.attempts import LostAttempt, NewAttempt

_COUNTS: Final = tuple(Usage.__slots__)
_OWN: Final = tuple(name for name in NewAttempt.__slots__ if name != "usage")


def new_attempt(row: Any) -> NewAttempt:
    """A row of `attempts`."""
    usage = Usage(**{name: row[name] for name in _COUNTS})
    return NewAttempt(usage=usage, **{name: row[name] for name in _OWN})


_ENDED = (
    f"SELECT {', '.join((*_OWN, *_COUNTS))} FROM attempts WHERE run_id = $1 "
    "ORDER BY ended_at, stream, fallback_index, attempt"
)

# What an attempt leaves in the log: the beginnings of its calls, its text, and at the latest with its end its
# row.
_LOST = """
SELECT i.stream, i.fallback AS fallback_index, i.attempt, count(*) AS calls,
       to_timestamp(min(i.ts) / 1000.0) AS started_at,
       coalesce((SELECT s.meta ->> 'purpose' FROM events s
                 WHERE s.run_id = $1 AND s.stream = i.stream AND s.type = $3), 'main') AS purpose,
       coalesce((SELECT sum(char_length(t.text)) FROM token_blocks t
                 WHERE t.run_id = $1 AND t.stream = i.stream AND t.fallback = i.fallback
                   AND t.attempt = i.attempt), 0)::bigint AS length
FROM events i
WHERE i.run_id = $1 AND i.type = $2
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = $1 AND a.stream = i.stream
                    AND a.fallback_index = i.fallback AND a.attempt = i.attempt)
GROUP BY i.stream, i.fallback, i.attempt
ORDER BY min(i.seq)"""


async def of_run(
    connection: asyncpg.Connection[Any], run_id: UUID
) -> tuple[Sequence[NewAttempt], Sequence[LostAttempt]]:
    """See `ports.attempts.AttemptLog`."""
    ended = await connection.fetch(_ENDED, run_id)
    lost = await connection.fetch(_LOST, run_id, StreamInit.code, SessionStart.code)
    return [new_attempt(row) for row in ended], [LostAttempt(**dict(row)) for row in lost]
