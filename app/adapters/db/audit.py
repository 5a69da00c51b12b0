"""Who changed what: one row beside each change, in its transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.tables import audit_log
from app.core.json_text import canonical


async def note(
    connection: AsyncConnection,
    id_: UUID,
    *,
    project_id: UUID,
    by: UUID | None,
    action: str,
    subject: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    """Record a change; of what was and what is, JSON objects, only digests are kept."""
    await connection.execute(
        sa.insert(audit_log).values(
            id=id_,
            project_id=project_id,
            key_id=by,
            action=action,
            subject=subject,
            digest_before=_digest(before),
            digest_after=_digest(after),
        )
    )


def _digest(state: Mapping[str, Any] | None) -> str | None:
    return None if state is None else "sha256:" + hashlib.sha256(canonical(state)).hexdigest()
