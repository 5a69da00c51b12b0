"""The log of a run: its entries as they are stored, and the one form in which everybody reads them.

Consecutive TOKEN events share one entry (`TokenBlock`); a reader cannot tell the difference. Metas are kept
as JSON text from the moment they are recorded, so that what is live and what is read back are the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import orjson

from app.core.events import by_code
from app.core.events.session import Token
from app.core.ids import stream_id

MAX_BLOCK = 256
"""Most TOKEN events in one block; a page query looks this far back for a block that holds its first event."""

TOKEN_CODE = Token.code


@dataclass(slots=True)
class EventEntry:
    """One event that is not a TOKEN."""

    seq: int
    ts: int
    """Milliseconds since the epoch."""
    code: int
    stream: int | None
    """Index of its stream in the run; None for an event of the run itself."""
    attempt: int | None
    fallback: int | None
    meta: str | None
    """JSON text of an object, None for an empty one."""
    callbacks: str | None
    """JSON text of a list, None for an empty one."""
    more: str | None = None
    """JSON text of an object whose members join `meta` when it is read, and are stored elsewhere."""

    @property
    def last_seq(self) -> int:
        """The number of its last event."""
        return self.seq


@dataclass(slots=True)
class TokenBlock:
    """Consecutive TOKEN events of one attempt."""

    seq: int
    """Of the first."""
    ts: int
    """Of the first."""
    stream: int
    attempt: int
    fallback: int
    texts: list[str] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    """Milliseconds between each event and the one before it; 0 for the first."""

    @property
    def last_seq(self) -> int:
        """The number of its last event."""
        return self.seq + len(self.texts) - 1

    def after(self, seq: int) -> TokenBlock:
        """The part of the block whose events come after `seq`."""
        skip = max(0, seq - self.seq + 1)
        if skip == 0:
            return self
        ts = self.ts + sum(self.delays[: skip + 1])
        delays = [0, *self.delays[skip + 1 :]]
        return TokenBlock(
            self.seq + skip, ts, self.stream, self.attempt, self.fallback, self.texts[skip:], delays
        )

    def before(self, seq: int) -> TokenBlock:
        """The part of the block whose events come before `seq`."""
        keep = seq - self.seq
        return TokenBlock(
            self.seq,
            self.ts,
            self.stream,
            self.attempt,
            self.fallback,
            self.texts[:keep],
            self.delays[:keep],
        )


Entry = EventEntry | TokenBlock


def pack(numbers: list[int]) -> bytes:
    """Small non-negative numbers as LEB128: one byte for each under 128."""
    try:
        plain = bytes(numbers)
        if not plain or max(plain) < 0x80:
            return plain
    except ValueError:
        pass
    out = bytearray()
    for number in numbers:
        rest = number
        while rest >= 0x80:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def unpack(data: bytes) -> list[int]:
    """The numbers that `pack` packed."""
    if data.isascii():
        return list(data)
    out: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            out.append(value)
            value = shift = 0
    return out


class Reader:
    """Turns the entries of one run into what clients see.

    `as_json` gives one JSON text for each event, `as_frames` server-sent events.
    """

    def __init__(self, run_id: UUID, branch_id: UUID | None, context: str | None) -> None:
        """`context` is the JSON text of the caller's context object."""
        self._run_id = str(run_id)
        self._run = run_id
        branch = f'"{branch_id}"' if branch_id else "null"
        self._ids = f'"run_id":"{run_id}","branch_id":{branch}'
        self._context = context or "{}"
        self._places: dict[tuple[int | None, int | None, int | None], str] = {}

    def _place(self, stream: int | None, attempt: int | None, fallback: int | None) -> str:
        """The members that are the same for every event of an attempt."""
        key = (stream, attempt, fallback)
        place = self._places.get(key)
        if place is None:
            if stream is None:
                where = '"stream_id":null,"attempt":null,"fallback_index":null'
            else:
                where = (
                    f'"stream_id":"{stream_id(self._run, stream)}",'
                    f'"attempt":{attempt},"fallback_index":{fallback}'
                )
            place = self._places[key] = f'{self._ids},{where},"context":{self._context}'
        return place

    def events(self, entries: Iterable[Entry]) -> Iterator[tuple[int, str, str]]:
        """(seq, type, JSON text) of every event, in order."""
        for entry in entries:
            if isinstance(entry, TokenBlock):
                place = self._place(entry.stream, entry.attempt, entry.fallback)
                seq, ts = entry.seq, entry.ts
                for text, delay in zip(entry.texts, entry.delays, strict=True):
                    ts += delay
                    yield (
                        seq,
                        "TOKEN",
                        f'{{"seq":{seq},"type":"TOKEN","ts":{ts},{place},'
                        f'"meta":{{"text":{orjson.dumps(text).decode()}}},"callbacks":[]}}',
                    )
                    seq += 1
            else:
                name = by_code(entry.code).type
                place = self._place(entry.stream, entry.attempt, entry.fallback)
                meta = _joined(entry.meta, entry.more)
                yield (
                    entry.seq,
                    name,
                    f'{{"seq":{entry.seq},"type":"{name}","ts":{entry.ts},{place},'
                    f'"meta":{meta},"callbacks":{entry.callbacks or "[]"}}}',
                )

    def as_json(self, entries: Iterable[Entry]) -> list[str]:
        """One JSON text for each event."""
        return [text for _, _, text in self.events(entries)]

    def as_frames(self, entries: Iterable[Entry]) -> bytes:
        """Server-sent events, ready to be written."""
        run = self._run_id
        return "".join(
            f"id: {run}:{seq}\nevent: {name}\ndata: {text}\n\n" for seq, name, text in self.events(entries)
        ).encode()


def _joined(meta: str | None, more: str | None) -> str:
    """Two JSON objects as one."""
    if more is None or more == "{}":
        return meta or "{}"
    if meta is None or meta == "{}":
        return more
    return f"{meta[:-1]},{more[1:]}"
