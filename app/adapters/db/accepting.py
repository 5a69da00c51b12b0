"""Accept runs as they come in, a group at a time, and learn what became of it when the connection breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from app.adapters.db import accept
from app.adapters.db.grouping import Group
from app.adapters.db.lane import Lane
from app.core.errors import Unavailable
from app.ports.storage import Acceptance, Accepted, NewRun

T = TypeVar("T")


class Accepting:
    """All acceptances of this process."""

    def __init__(self, lane: Lane, *, owner: UUID, lease: timedelta) -> None:
        """`owner` names this process in leases, each of which is as long as `lease`."""
        self._lane = lane
        self._owner = owner
        self._lease = lease
        self._group = Group[NewRun, Acceptance](self._batch, limit=accept.GROUP)

    async def submit(self, new: NewRun) -> Acceptance:
        """See `ports.storage.RunStore.accept`."""
        return await self._group.submit(new)

    async def _batch(self, news: Sequence[NewRun]) -> Sequence[Acceptance | BaseException]:
        # Those that can start at once go together; each of the rest takes a transaction of its own, so that
        # one that is refused, or poisoned, does not fail its neighbours.
        plain = [new for new in news if not new.quotas]
        starting = [new for new in plain if new.starts]
        queueing = [new for new in plain if not new.starts]

        async def start(connection: asyncpg.Connection[Any]) -> set[UUID]:
            return await accept.start_all(connection, starting, owner=self._owner, lease=self._lease)

        async def line_up(connection: asyncpg.Connection[Any]) -> set[UUID]:
            return await accept.line_up(connection, queueing)

        taken = {
            **await self._together(starting, start, running=True),
            **await self._together(queueing, line_up, running=False),
        }
        return [taken.get(new.run.id) or await self._alone(new) for new in news]

    async def _together(
        self,
        news: Sequence[NewRun],
        work: Callable[[asyncpg.Connection[Any]], Awaitable[set[UUID]]],
        *,
        running: bool,
    ) -> Mapping[UUID, Acceptance]:
        if not news:
            return {}
        try:
            found = await self._heard(news, work)
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError):
            return {}
        return found if isinstance(found, dict) else dict.fromkeys(found, Accepted(running=running))

    async def _alone(self, new: NewRun) -> Acceptance | BaseException:
        async def work(connection: asyncpg.Connection[Any]) -> Acceptance:
            return await accept.accept_alone(connection, new, owner=self._owner, lease=self._lease)

        try:
            found = await self._heard([new], work)
        except Exception as refusal:
            return refusal
        return found[new.run.id] if isinstance(found, dict) else found

    async def _heard(
        self, news: Sequence[NewRun], work: Callable[[asyncpg.Connection[Any]], Awaitable[T]]
    ) -> T | dict[UUID, Accepted]:
        """What `work` gives, or what it has done although the connection broke before it could say so."""
        said = False

        async def saying(connection: asyncpg.Connection[Any]) -> T:
            nonlocal said
            said = True
            return await work(connection)

        async def look(connection: asyncpg.Connection[Any]) -> dict[UUID, Accepted]:
            return await accept.outcome(connection, news, owner=self._owner, lease=self._lease)

        try:
            return await self._lane.run(saying)
        except Unavailable:
            if not said:
                raise
            found = await self._lane.run(look)
            if not found:
                raise
            return found
