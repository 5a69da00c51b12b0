"""Follow a run's log: what is stored first, then what is committed, from one cursor without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass

from app.core.events import by_code
from app.core.events.run import RunCancelled, RunCompleted, RunExpired, RunFailed
from app.core.record import Entry, EventEntry
from app.ports.storage import RunRecord, RunStore
from app.services.feed import Batch, Feed, Feeds

PAGE = 1000
"""Events read from the database at a time."""
MAX_PAGES = 20
"""Most of them for one filtered page, which may therefore be short or empty."""
POLL_S = 0.25
"""How often the log of a run that is executed elsewhere is looked at."""

TERMINAL_CODES = frozenset({RunCompleted.code, RunFailed.code, RunCancelled.code, RunExpired.code})


def is_terminal(entry: Entry) -> bool:
    """Whether nothing comes after this entry."""
    return isinstance(entry, EventEntry) and entry.code in TERMINAL_CODES


class Follower:
    """Reads one run's log on."""

    def __init__(self, store: RunStore, feeds: Feeds, run: RunRecord, after: int) -> None:
        self._store = store
        self._feeds = feeds
        self._run = run
        self._cursor = after

    async def batches(self, silence_s: float) -> AsyncGenerator[Batch | None]:
        """What comes after the cursor, in order, to the terminal event; None after each silence."""
        while True:
            feed = self._feeds.get(self._run.id)
            source = self._live(feed, silence_s) if feed is not None else self._stored(silence_s)
            # Closed at once when the follower leaves: a watcher that is gone must not be counted.
            async with aclosing(source):
                async for batch in source:
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
        quiet_s = 0.0
        while self._feeds.get(self._run.id) is None:
            page = await page_of(self._store, self._run, after=self._cursor, limit=PAGE)
            if page:
                quiet_s = 0.0
                yield Batch(page)
                continue
            if self._run.ended:
                return
            self._run = await self._store.run(self._run.project_id, self._run.id)
            if self._run.ended:
                continue
            await asyncio.sleep(POLL_S)
            quiet_s += POLL_S
            if quiet_s >= silence_s:
                quiet_s = 0.0
                yield None


async def page_of(store: RunStore, run: RunRecord, *, after: int, limit: int) -> list[Entry]:
    """Stored entries, the terminal event completed by the run's result."""
    entries = list(await store.page(run.id, after=after, limit=limit))
    if entries and is_terminal(entries[-1]):
        last = entries[-1]
        assert isinstance(last, EventEntry)
        result = run.result if run.ended else (await store.run(run.project_id, run.id)).result
        last.more = f'{{"result":{result or "null"}}}'
    return entries


def cut(entries: list[Entry], limit: int) -> list[Entry]:
    """The entries of the first `limit` events."""
    out: list[Entry] = []
    left = limit
    for entry in entries:
        size = size_of(entry)
        if size > left:
            if left and not isinstance(entry, EventEntry):
                out.append(entry.before(entry.seq + left))
            break
        out.append(entry)
        left -= size
    return out


@dataclass(frozen=True, slots=True)
class EventPage:
    """A stretch of a log."""

    entries: list[Entry]
    last_seq: int
    """Where the next page begins; what a filter left out counts as read."""
    has_more: bool


async def page_of_types(
    store: RunStore, run: RunRecord, *, after: int, limit: int, types: Collection[str] | None
) -> EventPage:
    """At most `limit` events after a cursor, only those of the given types."""
    found: list[Entry] = []
    wanted = limit
    for _ in range(MAX_PAGES):
        read = await page_of(store, run, after=after, limit=PAGE if types is not None else limit + 1)
        kept = [entry for entry in read if types is None or type_of(entry) in types]
        shown = cut(kept, wanted)
        wanted -= sum(map(size_of, shown))
        found += shown
        if sum(map(size_of, kept)) > sum(map(size_of, shown)):
            return EventPage(found, found[-1].last_seq if found else after, True)
        if not read:
            return EventPage(found, after, False)
        after = read[-1].last_seq
        if types is None or after >= run.last_seq:
            return EventPage(found, after, False)
    return EventPage(found, after, True)


def size_of(entry: Entry) -> int:
    """How many events an entry holds."""
    return 1 if isinstance(entry, EventEntry) else len(entry.texts)


def type_of(entry: Entry) -> str:
    """The type of the events that an entry holds."""
    return by_code(entry.code).type if isinstance(entry, EventEntry) else "TOKEN"
