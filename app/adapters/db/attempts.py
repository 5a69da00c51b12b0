"""What attempts at models used and cost: written with the log, and read again where a run was lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from app.core.events.session import SessionStart, StreamInit
from app.core.usage.counts import Usage
from app.core.usage.prices import text_of
from app.ports.attempts import LostAttempt, NewAttempt
from app.ports.storage import Flush

_PLACE: Final = ("stream", "fallback_index", "attempt")
_SAID: Final = ("purpose", "model", "provider", "wire_model", "outcome", "code")
_COUNTS: Final = (
    *("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("reported", "estimated"),
)
_TIMES: Final = ("started_at", "ended_at")
_COLUMNS: Final = (*_PLACE, *_SAID, *_COUNTS, "cost", *_TIMES)
_TYPES: Final = (
    *("smallint",) * 3,
    *("text",) * 6,
    *("integer",) * 5,
    *("boolean",) * 2,
    "numeric",
    *("timestamptz",) * 2,
)


def cte(parameter: int) -> str:
    """The part of a flush that inserts attempts: they are one JSON text, the parameter of that number.

    One whose row is there was written by a try that broke off after its commit.
    """
    names = ", ".join(_COLUMNS)
    typed = ", ".join(f"{name} {kind}" for name, kind in zip(_COLUMNS, _TYPES, strict=True))
    return f"""
attempted AS (
    INSERT INTO attempts (run_id, project_id, branch_id, {names})
    SELECT a.run_id, a.project_id, a.branch_id, {", ".join(f"a.{name}" for name in _COLUMNS)}
    FROM json_to_recordset(${parameter}::text::json)
        AS a (run_id uuid, project_id uuid, branch_id uuid, {typed})
    JOIN fence f ON f.id = a.run_id
    ON CONFLICT DO NOTHING
)"""


def as_json(flushes: Sequence[Flush]) -> str:
    """That parameter."""
    found = [_row(f, row) for f in flushes for row in f.rows if isinstance(row, NewAttempt)]
    # The driver has a class of its own for ids.
    return orjson.dumps(found, default=str).decode() if found else "[]"


def _row(flush: Flush, attempt: NewAttempt) -> dict[str, Any]:
    return {
        "run_id": flush.run_id,
        "project_id": flush.project_id,
        "branch_id": flush.branch_id,
        **{name: getattr(attempt, name) for name in (*_PLACE, *_SAID, *_TIMES)},
        **{name: getattr(attempt.usage, name) for name in _COUNTS},
        "cost": None if attempt.cost is None else text_of(attempt.cost),
    }


def new_attempt(row: Any) -> NewAttempt:
    """A row of `attempts`."""
    own = {name: row[name] for name in (*_PLACE, *_SAID, "cost", *_TIMES)}
    return NewAttempt(usage=Usage(**{name: row[name] for name in _COUNTS}), **own)


_ENDED = (
    f"SELECT {', '.join(_COLUMNS)} FROM attempts WHERE run_id = $1 ORDER BY ended_at, {', '.join(_PLACE)}"
)

# What an attempt leaves in the log: its beginning, its text, and at the latest with its end its row.
_LOST = """
SELECT i.stream, i.fallback AS fallback_index, i.attempt, to_timestamp(i.ts / 1000.0) AS started_at,
       coalesce((SELECT s.meta ->> 'purpose' FROM events s
                 WHERE s.run_id = $1 AND s.stream = i.stream AND s.type = $3), 'main') AS purpose,
       coalesce((SELECT sum(char_length(t.text)) FROM token_blocks t
                 WHERE t.run_id = $1 AND t.stream = i.stream AND t.fallback = i.fallback
                   AND t.attempt = i.attempt), 0)::bigint AS length
FROM events i
WHERE i.run_id = $1 AND i.type = $2
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = $1 AND a.stream = i.stream
                    AND a.fallback_index = i.fallback AND a.attempt = i.attempt)
ORDER BY i.seq"""


async def of_run(
    connection: asyncpg.Connection[Any], run_id: UUID
) -> tuple[Sequence[NewAttempt], Sequence[LostAttempt]]:
    """See `ports.attempts.AttemptLog`."""
    ended = await connection.fetch(_ENDED, run_id)
    lost = await connection.fetch(_LOST, run_id, StreamInit.code, SessionStart.code)
    return [new_attempt(row) for row in ended], [LostAttempt(**dict(row)) for row in lost]
