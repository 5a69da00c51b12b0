"""Notes what is stored of a run at every commit of its log, in the commit itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

_NOTE = """
CREATE TABLE noted (run_id uuid, seq int, state json, PRIMARY KEY (run_id, seq));

CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    branch uuid := (SELECT branch_id FROM runs WHERE id = NEW.run_id);
BEGIN
    INSERT INTO noted SELECT NEW.run_id, greatest(
        (SELECT max(seq) FROM events WHERE run_id = NEW.run_id),
        (SELECT max(seq + count - 1) FROM token_blocks WHERE run_id = NEW.run_id)),
    json_build_object(
        'run', (SELECT row_to_json(r) FROM runs r WHERE id = NEW.run_id),
        'calls', (SELECT coalesce(json_agg(c ORDER BY batch, index, attempt), '[]')
                  FROM function_calls c WHERE run_id = NEW.run_id),
        'said', (SELECT coalesce(json_agg(m ORDER BY position), '[]')
                 FROM messages m WHERE branch_id = branch AND NOT superseded))
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
"""
_ON = """
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION note()"""


@dataclass(frozen=True, slots=True)
class Noted:
    """What was stored when the log's last event was committed."""

    seq: int
    run: dict[str, Any]
    calls: list[dict[str, Any]]
    """Rows, one for each attempt."""
    said: list[dict[str, Any]]
    """The conversation of the branch."""


async def take_notes(connection: asyncpg.Connection[Any]) -> None:
    """Begin to note, for all runs from now on."""
    await connection.execute(_NOTE)
    for parent in ("events", "token_blocks"):
        leaves = await connection.fetch(
            "SELECT relid::text AS name FROM pg_partition_tree($1::text::regclass) WHERE isleaf", parent
        )
        for leaf in leaves:
            await connection.execute(_ON.format(table=leaf["name"]))


async def notes_of(connection: asyncpg.Connection[Any], run_id: str) -> list[Noted]:
    """What was noted of a run, in order."""
    rows = await connection.fetch("SELECT seq, state FROM noted WHERE run_id = $1 ORDER BY seq", UUID(run_id))
    return [Noted(row["seq"], **json.loads(row["state"])) for row in rows]
