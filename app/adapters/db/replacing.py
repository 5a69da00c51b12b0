"""Accept a run that takes the place of the active one: that one is to end, and may not count any more."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import asyncpg

from app.ports.storage import NewRun

ENDING: Final = frozenset({"interrupt", "rollback"})
"""What `if_busy` says where the active run is to end."""

# The run's row before the branch's, in the order in which everybody takes both who writes for a run.
_ACTIVE = """
SELECT id FROM runs WHERE branch_id = $1 AND project_id = $2 AND status IN ('running', 'waiting')
FOR NO KEY UPDATE"""

# As a cancellation does it: a run that waits, or comes to, is taken up, to be ended by whoever takes it. What
# a run has said that was rolled back is left out by the transaction that ends it: by `leave_out`, a trigger.
_END = """
UPDATE runs SET cancel_requested_at = coalesce(cancel_requested_at, $2), ready_at = $2,
       superseded = superseded OR $3
WHERE id = $1"""

_TAKE_ITS_PLACE = "UPDATE runs SET replaces = $2 WHERE id = $1"


async def active(connection: asyncpg.Connection[Any], new: NewRun) -> UUID | None:
    """The run whose place the new one would take, locked: it neither ends nor says anything meanwhile."""
    found: UUID | None = await connection.fetchval(_ACTIVE, new.run.branch_id, new.run.project_id)
    return found


async def end(connection: asyncpg.Connection[Any], new: NewRun, replaced: UUID) -> None:
    """Have the active run end, and the new one, which is queued, follow it before all others."""
    await connection.execute(_END, replaced, new.run.created_at, new.if_busy == "rollback")
    await connection.execute(_TAKE_ITS_PLACE, new.run.id, replaced)
