"""Who changed what: one row beside each change, in its transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.tables import audit_log
from app.core.json_text import canonical
from app.ports.ambient import IdSource

T = TypeVar("T")


class Audit(Generic[T]):
    """Notes the changes of one kind of thing."""

    def __init__(
        self,
        ids: IdSource,
        kind: str,
        *,
        name_of: Callable[[T], object],
        state_of: Callable[[T], Mapping[str, Any]],
    ) -> None:
        """`name_of` tells a thing from others of its kind; `state_of` is what counts of it, a JSON object."""
        self._ids = ids
        self._kind = kind
        self._name_of = name_of
        self._state_of = state_of

    async def note(
        self,
        connection: AsyncConnection,
        verb: str,
        project_id: UUID,
        before: T | None,
        after: T | None,
        *,
        by: UUID | None,
    ) -> None:
        """Record a change; of what was and what is only digests are kept, and the names of what differs.

        One of the two may be None: there was nothing before, or there is nothing now.
        """
        named = after if after is not None else before
        assert named is not None
        was, now = (None if thing is None else self._state_of(thing) for thing in (before, after))
        await connection.execute(
            sa.insert(audit_log).values(
                id=self._ids.new(),
                project_id=project_id,
                key_id=by,
                action=f"{self._kind}.{verb}",
                subject=f"{self._kind}:{self._name_of(named)}",
                digest_before=_digest(was),
                digest_after=_digest(now),
                detail={"changed": _changed(was or {}, now or {})},
            )
        )


def _digest(state: Mapping[str, Any] | None) -> str | None:
    return None if state is None else "sha256:" + hashlib.sha256(canonical(state)).hexdigest()


def _changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Members that differ; one that is null counts as one that is not there."""
    names = sorted(was.keys() | now.keys())
    return [name for name in names if canonical(was.get(name)) != canonical(now.get(name))]
