"""What a run has committed lately, for those who follow it in this process.

A follower is only a cursor: there is no buffer of its own that could overflow. Who falls behind what is kept
here reads on from the database.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

from app.core.record import Entry, Reader, TokenBlock

KEEP_BATCHES = 64
"""Committed batches kept for followers that are nearly up to date."""
KEEP_CHARACTERS = 1_000_000
"""Most text kept in them."""


class Batch:
    """The entries of one commit."""

    __slots__ = ("_frames", "entries", "first_seq", "last_seq", "size")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.first_seq = entries[0].seq
        self.last_seq = entries[-1].last_seq
        self.size = sum(
            sum(map(len, e.texts)) if isinstance(e, TokenBlock) else len(e.meta or "") for e in entries
        )
        self._frames: bytes | None = None

    def frames(self, reader: Reader) -> bytes:
        """Its server-sent events, made once for all followers, by the reader of the one who comes first."""
        if self._frames is None:
            self._frames = reader.as_frames(self.entries)
        else:
            reader.tell(self.entries)
        return self._frames


class Feed:
    """The latest commits of one run."""

    def __init__(self, last_seq: int) -> None:
        self.last_seq = last_seq
        """Number of the last committed event."""
        self.ended = False
        """Whether that event was the run's terminal one."""
        self.watchers = 0
        """Who wants events as they come; with none, tokens may wait for company."""
        self._batches: deque[Batch] = deque()
        self._size = 0
        self._waiting: set[asyncio.Future[bool]] = set()

    def publish(self, entries: Sequence[Entry], *, ended: bool) -> None:
        """Add what was just committed."""
        if entries:
            batch = Batch(entries)
            self._batches.append(batch)
            self._size += batch.size
            self.last_seq = batch.last_seq
            while len(self._batches) > KEEP_BATCHES or (
                self._size > KEEP_CHARACTERS and len(self._batches) > 1
            ):
                self._size -= self._batches.popleft().size
        self.close() if ended else self.wake()

    def close(self) -> None:
        """Nothing more will be published here: the run ended, or its lease was lost."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Have every follower look again."""
        for future in self._waiting:
            _settle(future, True)
        self._waiting.clear()

    def since(self, seq: int) -> list[Batch] | None:
        """The batches after `seq`; None when they are no longer all here."""
        if seq >= self.last_seq:
            return []
        out = [batch for batch in self._batches if batch.last_seq > seq]
        if out and out[0].first_seq == seq + 1:
            return out
        return None

    async def changed(self, timeout_s: float) -> bool:
        """Wait for the next `publish`; False when none came in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        # Not by `asyncio.wait`, after which the follower would be told one turn of the loop later.
        silence = loop.call_later(timeout_s, _settle, future, False)
        self._waiting.add(future)
        try:
            return await future
        finally:
            silence.cancel()
            self._waiting.discard(future)


def _settle(future: asyncio.Future[bool], changed: bool) -> None:
    if not future.done():
        future.set_result(changed)


class Feeds:
    """The feeds of the runs that this process writes."""

    def __init__(self) -> None:
        self._feeds: dict[UUID, Feed] = {}
        self.on_open: Callable[[UUID, Feed], None] = lambda run_id, feed: None
        """Told of each feed that is opened."""

    def open(self, run_id: UUID, last_seq: int) -> Feed:
        """A feed for a run whose lease this process just got."""
        feed = self._feeds[run_id] = Feed(last_seq)
        self.on_open(run_id, feed)
        return feed

    def get(self, run_id: UUID) -> Feed | None:
        """The run's feed, while it runs here."""
        return self._feeds.get(run_id)

    def drop(self, run_id: UUID, feed: Feed) -> None:
        """Forget a run's feed, unless it has got another by now; those who follow it still hold it."""
        if self._feeds.get(run_id) is feed:
            del self._feeds[run_id]

    def __len__(self) -> int:
        return len(self._feeds)
