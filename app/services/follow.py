"""Follow a run's log: what is stored first, then what is committed, from one cursor without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Protocol

from app.core.errors import EventsGone
from app.core.events.run import RunCancelled, RunCompleted, RunExpired, RunFailed
from app.core.record import Entry, EventEntry, Reader, TokenBlock
from app.ports.storage import RunRecord, RunStore
from app.services.elsewhere import Elsewhere
from app.services.feed import Batch, Feed, Feeds

PAGE = 1000
"""Events read from the database at a time."""

TERMINAL_CODES = frozenset({RunCompleted.code, RunFailed.code, RunCancelled.code, RunExpired.code})


def is_terminal(entry: Entry) -> bool:
    """Whether nothing comes after this entry."""
    return isinstance(entry, EventEntry) and entry.code in TERMINAL_CODES


class Shows(Protocol):
    """What makes something of entries, and has to see them all."""

    def behind(self, entries: Sequence[Entry]) -> int | None:
        """See `record.Reader`."""

    def tell(self, entries: Iterable[Entry]) -> None:
        """See `record.Reader`."""


def reader_of(run: RunRecord) -> Reader:
    """What shows the events of a run."""
    return Reader(run.id, run.branch_id, run.context)


class Follower:
    """Reads one run's log on."""

    def __init__(
        self,
        store: RunStore,
        feeds: Feeds,
        elsewhere: Elsewhere,
        run: RunRecord,
        after: int,
        reader: Shows,
        pace_s: float = 0,
    ) -> None:
        """`reader` can show each batch that comes. With a pace, commits that follow each other faster come as
        one batch.
        """
        self._reader = reader
        self._store = store
        self._feeds = feeds
        self._elsewhere = elsewhere
        self._run = run
        self._cursor = after
        self._pace_s = pace_s

    async def batches(self, silence_s: float) -> AsyncGenerator[Batch | None]:
        """What comes after the cursor, in order, to the terminal event; None after each silence."""
        while True:
            feed = self._feeds.get(self._run.id)
            source = self._live(feed, silence_s) if feed is not None else self._stored(silence_s)
            # Closed at once when the follower leaves: a watcher that is gone must not be counted.
            async with aclosing(source):
                async for batch in source:
                    if batch is not None:
                        await catch_up(self._store, self._run, self._reader, batch.entries)
                    yield batch
                    if batch is not None:
                        self._cursor = batch.last_seq
                        if is_terminal(batch.entries[-1]):
                            return
            if feed is None and self._run.ended:
                return

    async def _live(self, feed: Feed, silence_s: float) -> AsyncGenerator[Batch | None]:
        """From the feed, as long as it has what comes next; ends when it is closed."""
        feed.watchers += 1
        try:
            while True:
                batches = feed.since(self._cursor)
                if batches is None:
                    page = await page_of(self._store, self._run, after=self._cursor, limit=PAGE)
                    if page:
                        yield Batch(page)
                elif batches and self._pace_s:
                    yield Batch([entry for batch in batches for entry in batch.entries])
                    await asyncio.sleep(self._pace_s)
                elif batches:
                    for batch in batches:
                        yield batch
                elif feed.ended:
                    return
                elif not await feed.changed(silence_s):
                    yield None
        finally:
            feed.watchers -= 1

    async def _stored(self, silence_s: float) -> AsyncGenerator[Batch | None]:
        """From the database, until the run is executed here or has ended."""
        with self._elsewhere.watching(self._run.id) as watch:
            while self._feeds.get(self._run.id) is None:
                watch.look(self._cursor)
                page = await page_of(self._store, self._run, after=self._cursor, limit=PAGE)
                if page:
                    yield Batch(page)
                    watch.after = self._cursor
                    if page[-1].last_seq - page[0].seq + 1 >= PAGE:
                        continue  # there may be more already
                elif self._run.ended:
                    return
                else:
                    self._run = await self._store.run(self._run.project_id, self._run.id)
                    if self._run.ended:
                        continue
                while not await watch.news(silence_s):
                    yield None


async def page_of(store: RunStore, run: RunRecord, *, after: int, limit: int) -> list[Entry]:
    """Stored entries, the terminal event completed by the run's result.

    Raises EventsGone where what comes after the cursor is kept no longer.
    """
    entries = list(await store.page(run.id, after=after, limit=limit))
    if run.ended and after < (whole_from := entries[0].seq - 1 if entries else run.last_seq):
        raise EventsGone(
            "This part of the log is kept no longer; `earliest_id` is the first event after which it can be "
            "read. What the run came to still stands in the run itself.",
            extra={"run_id": str(run.id), "earliest_id": f"{run.id}:{whole_from}"},
        )
    if entries and is_terminal(entries[-1]):
        last = entries[-1]
        assert isinstance(last, EventEntry)
        result = run.result if run.ended else (await store.run(run.project_id, run.id)).result
        last.more = f'{{"result":{result or "null"}}}'
    return entries


async def catch_up(store: RunStore, run: RunRecord, reader: Shows, entries: Sequence[Entry]) -> None:
    """Tell a reader that begins in the middle what it has to know before it can show these entries."""
    after = reader.behind(entries)
    while after is not None and after + 1 < entries[0].seq:
        page = await store.page(run.id, after=after, limit=PAGE)
        earlier = up_to(page, entries[0].seq - 1)
        if not earlier:
            return
        reader.tell(earlier)
        after = earlier[-1].last_seq


def up_to(entries: Sequence[Entry], seq: int) -> list[Entry]:
    """The part of the entries whose events come before `seq`, or are it."""
    kept = [entry for entry in entries if entry.seq <= seq]
    if kept and isinstance(last := kept[-1], TokenBlock) and last.last_seq > seq:
        kept[-1] = last.before(seq + 1)
    return kept
