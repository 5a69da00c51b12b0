"""Read a run's log in pages, and the texts that it holds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from app.core.errors import FieldError, Invalid, NotFound
from app.core.ids import stream_id
from app.core.record import Entry, EventEntry, TokenBlock, offset_of, type_of
from app.ports.storage import RunRecord, RunStore
from app.services.follow import PAGE, Shows, catch_up, page_of, up_to

MAX_PAGES = 20
"""Most reads for one filtered page, which may therefore be short or empty."""

Show = Callable[[Sequence[Entry]], Iterable[str]]
"""What is shown of entries, as JSON texts."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """A stretch of a log."""

    items: list[str]
    """JSON texts."""
    last_seq: int
    """Where the next page begins; what a filter left out counts as read."""
    has_more: bool


async def log_page(
    store: RunStore,
    run: RunRecord,
    reader: Shows,
    *,
    after: int,
    limit: int,
    types: Collection[str] | None,
    show: Show,
) -> EventPage:
    """What `show` makes of at most `limit` events after a cursor, counting only those of the given types.

    The reader, with which it shows them, sees all of them.
    """
    items: list[str] = []
    wanted = limit
    for _ in range(MAX_PAGES):
        read = await page_of(store, run, after=after, limit=PAGE if types is not None else limit + 1)
        shown = first_of(read, wanted, types)
        await catch_up(store, run, reader, shown)
        items += show(shown)
        size = count(shown, types)
        if count(read, types) > size:
            return EventPage(items, shown[-1].last_seq if shown else after, True)
        if not read:
            return EventPage(items, after, False)
        wanted -= size
        after = read[-1].last_seq
        if types is None or after >= run.last_seq:
            return EventPage(items, after, False)
    return EventPage(items, after, True)


def first_of(entries: Sequence[Entry], limit: int, types: Collection[str] | None) -> Sequence[Entry]:
    """The entries up to the `limit`-th event of the types; all where there are no more."""
    left = limit
    for at, entry in enumerate(entries):
        size = count([entry], types)
        if size > left:
            return [*entries[:at], *up_to([entry], entry.seq + left - 1)] if left else entries[:at]
        left -= size
    return entries


def count(entries: Sequence[Entry], types: Collection[str] | None) -> int:
    """How many events of the types the entries hold."""
    return sum(
        1 if isinstance(entry, EventEntry) else len(entry.texts)
        for entry in entries
        if types is None or type_of(entry) in types
    )


@dataclass(frozen=True, slots=True)
class StreamText:
    """The text of a stream as it stands after an event."""

    stream_id: UUID
    to_seq: int
    text: str


async def text_at(store: RunStore, run: RunRecord, *, stream: UUID | None, to_seq: int | None) -> StreamText:
    """The text of a stream (None: the first, which is the main one) after an event (None: the last).

    Raises Invalid for an event that is still to come, NotFound for a stream of which there is nothing up to
    there, EventsGone where the log is kept no longer.
    """
    end = run.last_seq if to_seq is None else known_seq(run, to_seq, parameter="to_seq")
    main = stream_id(run.id, 0)
    wanted = main if stream is None else stream
    known: dict[UUID, int] = {main: 0}
    pieces: list[str] = []
    async for entry in entries_to(store, run, end):
        if entry.stream is None:
            continue
        if entry.stream not in known.values():
            known[stream_id(run.id, entry.stream)] = entry.stream
        if entry.stream != known.get(wanted):
            continue
        if isinstance(entry, TokenBlock):
            pieces += entry.texts
        elif (offset := offset_of(entry)) is not None:
            pieces = ["".join(pieces)[:offset]]
    if wanted not in known:
        words = f"there is nothing of this stream up to event {end}"
        raise NotFound(
            f"There is no such stream: {words}.",
            errors=[FieldError("", words, "no_such_stream", "stream_id")],
        )
    return StreamText(wanted, end, "".join(pieces))


def known_seq(run: RunRecord, seq: int, *, parameter: str | None, pointer: str = "") -> int:
    """The number of an event, given in a parameter or at a place of the body. Raises Invalid for one that is
    still to come.
    """
    if seq > run.last_seq:
        words = f"the log ends with event {run.last_seq}"
        raise Invalid(
            f"There is no such event yet: {words}.",
            errors=[FieldError(pointer, words, "no_such_event", parameter)],
        )
    return seq


async def entries_to(store: RunStore, run: RunRecord, end: int) -> AsyncGenerator[Entry]:
    """The log up to an event. Raises EventsGone."""
    seq = 0
    while seq < end and (read := await page_of(store, run, after=seq, limit=PAGE)):
        for entry in up_to(read, end):
            yield entry
        seq = read[-1].last_seq
