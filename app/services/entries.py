"""Make the entries of a log that is being written: an event each, and blocks of tokens in a row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import sub
from typing import Any

from app.core.events.base import Event
from app.core.json_text import dumps
from app.core.record import Entry, EventEntry, TokenBlock
from app.core.texts import Spans


def numbered(entries: list[Entry]) -> list[Entry]:
    """Entries that follow each other without a gap, and whose times never go back.

    Until here blocks hold, in place of delays, the time at which each token came, and those of streams that
    spoke by turns overlap.
    """
    in_order(entries)
    latest = 0
    for entry in entries:
        if isinstance(entry, TokenBlock):
            times = entry.delays if entry.delays[0] >= latest else [max(ts, latest) for ts in entry.delays]
            entry.ts, latest = times[0], times[-1]
            entry.delays = [0, *map(sub, times[1:], times)]
    return entries


def in_order(entries: Sequence[Entry]) -> None:
    """Number the blocks among entries so that they follow each other without a gap."""
    for before, entry in pairwise(entries):
        if isinstance(entry, TokenBlock):
            entry.seq = before.last_seq + 1


def entry_of(
    event: Event,
    seq: int,
    ts: int,
    stream: int | None = None,
    attempt: int | None = None,
    fallback: int | None = None,
    more: str | None = None,
    spans: Spans | None = None,
) -> EventEntry:
    """An event as it is stored; `spans` for one that may refer to its stream's text."""
    meta: Any = event.meta()
    callbacks: Any = [callback.wire() for callback in event.callbacks]
    if event.refers:
        spans = spans or Spans()
        meta, callbacks = spans.stored(meta, stream), spans.stored(callbacks, stream)
    return EventEntry(
        seq,
        ts,
        event.code,
        stream,
        attempt,
        fallback,
        dumps(meta).decode() if meta else None,
        dumps(callbacks).decode() if callbacks else None,
        more,
    )
