"""Read conversations, and keep those that were read last: of a kept one only what came since is read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from app.core.operate.history import History, RawMessage


class Place(NamedTuple):
    """Where a message stands, and since when it does."""

    position: int
    writer: int
    """The transaction that stored it: another one where it was removed and brought back, maybe changed."""


Said = Sequence[tuple[Place, RawMessage]]
"""Messages in order, each with its place."""


class Wanted(NamedTuple):
    """A conversation to be read."""

    branch_id: UUID
    last: int | None
    """Position of the last message that is known of it, with which reading begins: it shows that the
    conversation is still the same. None where nothing of it is wanted.
    """


Read = Callable[[Sequence[Wanted]], Awaitable[Mapping[UUID, Said]]]
"""Reads conversations."""


class _Kept(NamedTuple):
    history: History
    last: Place
    """Of its last message."""
    size: int
    """Bytes that were counted for it."""


class Histories:
    """Conversations by branch.

    Messages are never changed and come only at the end, so that what was read stays true. Those of a run that
    was rolled back are left out as soon as it has ended. They are the last ones then, for nobody else speaks
    before: a conversation that was kept with any of them has one as its last, and is read anew when that is
    missing. So is one that was removed and imported again, which other transactions have stored. The system
    message is no part of a history: it stands on the branch's row.
    """

    def __init__(self, most_bytes: int) -> None:
        """About `most_bytes` are kept; the one that was not used for longest gives way."""
        self._most = most_bytes
        self._kept: OrderedDict[UUID, _Kept] = OrderedDict()
        self.size = 0
        """Bytes that are kept, about."""

    async def read(self, read: Read, branches: Sequence[UUID]) -> Mapping[UUID, History]:
        """The conversations as they are now, of those branches that there are."""
        found, changed = await self._since(read, branches)
        if changed:
            # A run was rolled back, or a backup put back: what is kept is of another time.
            for branch_id in changed:
                self._forget(branch_id)
            again, _ = await self._since(read, changed)
            found |= again
        return found

    async def _since(self, read: Read, branches: Sequence[UUID]) -> tuple[dict[UUID, History], list[UUID]]:
        """The conversations, and the branches whose kept one is not the beginning of what is there now."""
        kept = [self._kept.get(branch_id) for branch_id in branches]
        wanted = [
            Wanted(branch_id, one.last.position if one else 0)
            for branch_id, one in zip(branches, kept, strict=True)
        ]
        said = await read(wanted)
        found: dict[UUID, History] = {}
        changed: list[UUID] = []
        for branch_id, one in zip(branches, kept, strict=True):
            new = said.get(branch_id)
            if new is None:
                continue
            if one is None:
                history = History([message for _, message in new])
            elif new and (new[0][0], new[0][1].id) == (one.last, one.history.said[-1].id):
                history = (
                    one.history.grown([message for _, message in new[1:]]) if len(new) > 1 else one.history
                )
            else:
                changed.append(branch_id)
                continue
            found[branch_id] = history
            if new:
                self._keep(branch_id, _Kept(history, new[-1][0], history.size))
        return found, changed

    def _keep(self, branch_id: UUID, kept: _Kept) -> None:
        self._forget(branch_id)
        if kept.size > self._most:
            return
        self._kept[branch_id] = kept
        self.size += kept.size
        while self.size > self._most:
            self._forget(next(iter(self._kept)))

    def _forget(self, branch_id: UUID) -> None:
        kept = self._kept.pop(branch_id, None)
        if kept is not None:
            self.size -= kept.size
