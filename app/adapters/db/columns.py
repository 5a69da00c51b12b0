"""Rows to dataclasses, and lists of dataclasses to the column arrays that `unnest` takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any
from uuid import UUID

from app.core.record import Entry, EventEntry, TokenBlock, pack, unpack
from app.ports.storage import RunRecord

RUN_COLUMNS = (
    "id, project_id, branch_id, kind, status, request, created_at, context, key_id, request_id, traceparent, "
    "epoch, cancel_requested_at, expires_at, result, error, validation, finish_reason, finish_reason_raw, "
    "partial_text, model, usage, attempts, fallback_index, last_seq, started_at, ended_at, resume, wake_at"
)


def run_record(row: Any) -> RunRecord:
    """A row of RUN_COLUMNS."""
    return RunRecord(**dict(row))


def transposed(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as columns; `width` empty columns for no rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


EVENT_WIDTH = 9
BLOCK_WIDTH = 10


def entry_columns(logs: Iterable[tuple[UUID, Sequence[Entry]]]) -> tuple[list[list[Any]], list[list[Any]]]:
    """The entries of several runs as (columns of events, columns of token blocks)."""
    events: list[tuple[Any, ...]] = []
    blocks: list[tuple[Any, ...]] = []
    for run_id, entries in logs:
        for e in entries:
            if isinstance(e, TokenBlock):
                blocks.append(
                    (
                        run_id,
                        e.ts,
                        e.seq,
                        len(e.texts),
                        e.stream,
                        e.attempt,
                        e.fallback,
                        "".join(e.texts),
                        pack([len(text) for text in e.texts]),
                        pack(e.delays),
                    )
                )
            else:
                events.append(
                    (run_id, e.ts, e.seq, e.code, e.stream, e.attempt, e.fallback, e.meta, e.callbacks)
                )
    return transposed(events, EVENT_WIDTH), transposed(blocks, BLOCK_WIDTH)


def event_entry(row: Any) -> EventEntry:
    """A row of `events`."""
    return EventEntry(
        row["seq"],
        row["ts"],
        row["type"],
        row["stream"],
        row["attempt"],
        row["fallback"],
        row["meta"],
        row["callbacks"],
    )


def token_block(row: Any) -> TokenBlock:
    """A row of `token_blocks`."""
    ends = list(accumulate(unpack(row["lengths"])))
    text: str = row["text"]
    texts = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return TokenBlock(
        row["seq"],
        row["ts"],
        row["stream"],
        row["attempt"],
        row["fallback"],
        texts,
        unpack(row["delays"]),
    )
