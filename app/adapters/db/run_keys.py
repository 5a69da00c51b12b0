"""Idempotency keys of requests that make runs: each names the one run that it was used for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from app.adapters.db.columns import transposed
from app.adapters.db.parts import FENCED
from app.adapters.db.sources import Source
from app.core.errors import Conflict, KeyReused
from app.ports.storage import NewRun

_REUSED: Final = "This Idempotency-Key was used with another body; use a new key for a new request."


class Used(NamedTuple):
    """A key, and the digest of what was asked under it."""

    project_id: UUID
    scope: str
    key: str
    fingerprint: bytes


def used(new: NewRun) -> Used:
    """The key of a run that has one."""
    assert new.idempotency is not None
    return Used(new.run.project_id, *new.idempotency)


ROWS: Final = Source("new_key", "project_id uuid, scope text, key text, fingerprint bytea, run_id uuid")
_NAMES = ", ".join(ROWS.names)
KEPT: Final = f"""keyed AS (
    INSERT INTO idempotency_keys ({_NAMES}) SELECT w.* FROM {{rows}} WHERE {FENCED}
    ORDER BY w.project_id, w.scope, w.key
)"""
"""Of the statement that stores runs: {rows} stands for the keys, and `fence` has the runs that are stored. A
key that is in use fails the whole statement. In order, lest two processes that have the same keys wait for
each other.
"""

_USE = f"""
INSERT INTO idempotency_keys ({_NAMES}) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING true"""

_RECALL = """
SELECT w.nr, k.fingerprint, k.run_id
FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS w (project_id, scope, key, nr)
JOIN idempotency_keys k USING (project_id, scope, key)"""


async def use(connection: asyncpg.Connection[Any], key: Used, run_id: UUID) -> UUID | None:
    """Use the key for a run in this transaction, or give the run for which it has been used.

    Waits for a transaction that is using it at this moment. Raises KeyReused, Conflict.
    """
    if await connection.fetchval(_USE, *key, run_id):
        return None
    (found,) = await recall(connection, [key])
    if found is None:
        raise Conflict("The idempotency key was in use a moment ago; try again.")
    if isinstance(found, KeyReused):
        raise found
    return found


async def recall(connection: asyncpg.Connection[Any], keys: Sequence[Used]) -> list[UUID | KeyReused | None]:
    """The run for which each was used, if it was; KeyReused where something else had been asked."""
    wanted = [(one.project_id, one.scope, one.key) for one in keys]
    found: list[UUID | KeyReused | None] = [None] * len(keys)
    for nr, fingerprint, run_id in await connection.fetch(_RECALL, *transposed(wanted)):
        same = fingerprint == keys[nr - 1].fingerprint
        found[nr - 1] = run_id if same else KeyReused(_REUSED)
    return found
