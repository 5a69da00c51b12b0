"""Legal holds: what is under one is not deleted, and nothing passes one unseen while it is being set."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.tables import projects
from app.core.errors import LegalHold

SWEEP: Final = 0x7377656570
"""Advisory lock: alone for what drops logs by their age, shared for what it must not miss."""


async def keep_sweep_away(connection: AsyncConnection) -> None:
    """Until this transaction ends, nothing is dropped for its age. Waits for what is being dropped."""
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock_shared(SWEEP)))


async def sweeps_alone(connection: AsyncConnection) -> bool:
    """Whether this transaction may drop what is old: nobody else does, and nothing is put under a hold."""
    return bool(await connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(SWEEP))))


async def refuse_held(connection: AsyncConnection, branch: Any) -> None:
    """Raise LegalHold for a row of `branches`, locked by the caller, or a project under a hold."""
    # The share lock makes a hold that is being set wait for our end, or makes us see it.
    project = sa.select(projects.c.legal_hold).where(projects.c.id == branch.project_id)
    held = await connection.scalar(project.with_for_update(read=True))
    if branch.legal_hold or held:
        what = "branch" if branch.legal_hold else "project"
        raise LegalHold(f"The {what} is under a legal hold: nothing of it is deleted or replaced.")
