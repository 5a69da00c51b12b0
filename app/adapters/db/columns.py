"""Rows to dataclasses, and lists of dataclasses to the column arrays that `unnest` takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from uuid import UUID

from app.core.record import EventEntry, TokenBlock, pack, unpack
from app.ports.storage import RunRecord

RUN_COLUMNS = (
    "id, project_id, branch_id, kind, status, request, created_at, context, key_id, request_id, traceparent, "
    "epoch, cancel_requested_at, expires_at, result, error, validation, finish_reason, finish_reason_raw, "
    "partial_text, model, usage, attempts, fallback_index, last_seq, started_at, ended_at, resume, wake_at"
)


_RUN_NAMES = RUN_COLUMNS.split(", ")


def run_record(row: Any) -> RunRecord:
    """A row with RUN_COLUMNS, and perhaps others."""
    return RunRecord(**{name: row[name] for name in _RUN_NAMES})


def transposed(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows, of which there are some, as columns."""
    return [list(column) for column in zip(*rows, strict=True)]


def event_row(run_id: UUID, event: EventEntry) -> tuple[Any, ...]:
    """A row of `events`."""
    return (
        *(run_id, event.ts, event.seq, event.code, event.stream, event.attempt, event.fallback),
        *(event.meta, event.callbacks),
    )


def block_row(run_id: UUID, block: TokenBlock) -> tuple[Any, ...]:
    """A row of `token_blocks`."""
    lengths = pack([len(text) for text in block.texts])
    return (
        *(run_id, block.ts, block.seq, len(block.texts), block.stream, block.attempt, block.fallback),
        *("".join(block.texts), lengths, pack(block.delays)),
    )


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
