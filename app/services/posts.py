"""What a webhook endpoint is to be told next of a run, read from the run's log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.callbacks import DERIVED, STORED, callbacks
from app.core.record import Entry, EventEntry, Reader, TokenBlock
from app.core.webhooks import post_body, post_id
from app.ports.storage import RunRecord, RunStore
from app.ports.webhooks import Due
from app.services.follow import catch_up, is_terminal, page_of

EVENTS: Final = 500
"""Events that are read at a time; a post tells of no more."""


@dataclass(frozen=True, slots=True)
class Post:
    """The content of one request."""

    id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a log that an endpoint has not been told of yet."""

    last_seq: int
    ended: bool
    """Whether nothing comes after it."""
    more: bool
    """Whether there is likely to be something after it already."""
    post: Post | None
    """None where nothing in it is for the endpoint."""


async def next_stretch(store: RunStore, run: RunRecord, due: Due, *, limit: int = EVENTS) -> Stretch:
    """What comes after the last thing that was told, up to the end of a post that was sent before.

    `limit` bounds the events of a post.
    """
    after, again = due.delivered_seq, due.post_seq is not None
    while True:
        entries = await page_of(store, run, after=after, limit=limit)
        full = bool(entries) and entries[-1].last_seq - after >= limit
        if due.post_seq is not None:
            entries = _up_to(entries, due.post_seq)
        if not entries:
            return Stretch(after, run.ended, False, None)
        after = entries[-1].last_seq
        ended = is_terminal(entries[-1])
        post = await _post(store, run, due, entries, ended=ended)
        if post is not None or not full:
            return Stretch(after, ended, not ended and (full or again), post)


async def _post(
    store: RunStore, run: RunRecord, due: Due, entries: Sequence[Entry], *, ended: bool
) -> Post | None:
    reader = await reader_at(store, run, entries[0].seq - 1)
    wanted = frozenset(STORED if due.callbacks is None else due.callbacks)
    derived = not wanted.isdisjoint(DERIVED)
    await catch_up(store, run, reader, entries)
    fired = [(seq, text) for seq, name, text in callbacks(reader, entries, derived=derived) if name in wanted]
    events: list[tuple[int, str]] = []
    if due.event_types:
        # A reader of its own: the other one has read all of this already.
        reader = await reader_at(store, run, entries[0].seq - 1)
        await catch_up(store, run, reader, entries)
        events = [(seq, text) for seq, _, text in reader.events(entries, types=due.event_types)]
    # Who has heard of a run hears of its end.
    if not fired and not events and not (ended and due.posts):
        return None
    last = entries[-1]
    first_seq = min([seq for seq, _ in (*fired[:1], *events[:1])], default=last.last_seq)
    body = post_body(
        run.id,
        run.branch_id,
        callbacks=[text for _, text in fired],
        events=[text for _, text in events],
        last_seq=last.last_seq,
        ended=ended,
        at_ms=last.ts if isinstance(last, EventEntry) else last.ts + sum(last.delays),
    )
    return Post(post_id(due.endpoint_id, run.id, first_seq), body)


async def reader_at(store: RunStore, run: RunRecord, after: int) -> Reader:
    """A reader for what comes after an event."""
    return Reader(run.id, run.branch_id, run.context)


def _up_to(entries: Sequence[Entry], last_seq: int) -> list[Entry]:
    out: list[Entry] = []
    for entry in entries:
        if entry.seq > last_seq:
            break
        out.append(entry.before(last_seq + 1) if isinstance(entry, TokenBlock) else entry)
    return out
