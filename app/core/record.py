"""The log of a run: its entries as they are stored, and the one form in which everybody reads them.

Consecutive TOKEN events share one entry (`TokenBlock`); a reader cannot tell the difference. Metas are kept
as JSON text from the moment they are recorded, so that what is live and what is read back are the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

import orjson

from app.core.callbacks import after_event, after_token
from app.core.events import by_code, event_types
from app.core.events.session import Token
from app.core.ids import stream_id
from app.core.json_text import joined
from app.core.texts import Beginnings

MAX_BLOCK = 256
"""Most TOKEN events in one block; a page query looks this far back for a block that holds its first event."""

TOKEN_CODE = Token.code

REFERRING = frozenset(kind.code for kind in event_types().values() if kind.refers)
"""Types whose meta or callbacks may refer to their stream's text."""
CUTTING = frozenset(kind.code for kind in event_types().values() if hasattr(kind, "content_offset"))
"""Types whose meta says how much of their stream's text stays."""


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

    It follows the texts of the streams, so that a reference to one can be shown as the text that it means.
    Hence every entry has to pass it, in order, by any of its methods. One that begins in the middle of a log
    is asked first what is `behind` that it needs to know, and told so.
    """

    def __init__(self, run_id: UUID, branch_id: UUID | None, context: str | None) -> None:
        """`context` is the JSON text of the caller's context object."""
        self._run_id = str(run_id)
        self._run = run_id
        branch = f'"{branch_id}"' if branch_id else "null"
        self._ids = f'"run_id":"{run_id}","branch_id":{branch}'
        self._context = context or "{}"
        self._places: dict[tuple[int | None, int | None, int | None], str] = {}
        self._beginnings = Beginnings()
        self._next = 1

    def behind(self, entries: Sequence[Entry]) -> int | None:
        """The event after which the log has to be told again, up to these entries, before they can be shown.

        None where nothing is missing, which is the rule: only a reader that began in the middle may lack what
        a reference means.
        """
        if not entries:
            return None
        first = entries[0].seq
        known = self._beginnings if first == self._next else Beginnings()
        missing = [
            seq
            for entry in entries
            if isinstance(entry, EventEntry) and entry.code in REFERRING and entry.stream is not None
            for text in (entry.meta, entry.callbacks)
            for seq in known.missing(text or "", entry.stream)
            if seq < first
        ]
        return min(missing) - 1 if missing else None

    def tell(self, entries: Iterable[Entry]) -> None:
        """Follow entries that are shown to nobody."""
        for entry in entries:
            self._pass(entry)

    def _pass(self, entry: Entry) -> None:
        if entry.seq != self._next:
            self._beginnings.forget()
        self._next = entry.last_seq + 1
        if isinstance(entry, TokenBlock):
            self._beginnings.said(entry.stream, entry.seq, entry.texts)
        elif (offset := offset_of(entry)) is not None and entry.stream is not None:
            self._beginnings.cut(entry.stream, offset)

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

    def _shown(self, entry: EventEntry) -> tuple[str, str | None]:
        """Meta and callbacks of an event, as JSON texts without references."""
        meta, callbacks = joined(entry.meta, entry.more), entry.callbacks
        if entry.code in REFERRING and entry.stream is not None:
            meta = self._beginnings.shown(meta, entry.stream)
            callbacks = callbacks and self._beginnings.shown(callbacks, entry.stream)
        return meta, callbacks

    def events(
        self,
        entries: Iterable[Entry],
        types: Collection[str] | None = None,
        aliases: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[tuple[int, str, str]]:
        """(seq, type, JSON text) of every event of the types, in order; `aliases` are shown as types."""
        for entry in entries:
            self._pass(entry)
            if types is not None and type_of(entry) not in types:
                continue
            place = self._place(entry.stream, entry.attempt, entry.fallback)
            if isinstance(entry, TokenBlock):
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
                name = type_of(entry)
                name = aliases.get(name, name)
                meta, callbacks = self._shown(entry)
                yield (
                    entry.seq,
                    name,
                    f'{{"seq":{entry.seq},"type":"{name}","ts":{entry.ts},{place},'
                    f'"meta":{meta},"callbacks":{callbacks or "[]"}}}',
                )

    def callbacks(
        self, entries: Iterable[Entry], types: Collection[str] | None = None
    ) -> Iterator[tuple[int, str, str, bool]]:
        """(seq, name, JSON text, whether it is the last of its event) of every callback, in order.

        `types` are those of the events after which they fire.
        """
        for entry in entries:
            self._pass(entry)
            if types is not None and type_of(entry) not in types:
                continue
            place = self._place(entry.stream, entry.attempt, entry.fallback)
            for seq, ts, fired in self._fired(entry):
                for left, (name, args) in enumerate(fired, 1 - len(fired)):
                    text = f'{{"seq":{seq},"ts":{ts},{place},"name":"{name}","args":{args}}}'
                    yield seq, name, text, left == 0

    def _fired(self, entry: Entry) -> Iterator[tuple[int, int, list[tuple[str, str]]]]:
        """seq, ts and callbacks of each event."""
        if isinstance(entry, EventEntry):
            yield entry.seq, entry.ts, after_event(*self._shown(entry))
            return
        ts = entry.ts
        for seq, (text, delay) in enumerate(zip(entry.texts, entry.delays, strict=True), entry.seq):
            ts += delay
            yield seq, ts, after_token(orjson.dumps(text).decode())

    def as_json(self, entries: Iterable[Entry]) -> list[str]:
        """One JSON text for each event."""
        return [text for _, _, text in self.events(entries)]

    def as_frames(self, entries: Iterable[Entry]) -> bytes:
        """Server-sent events, ready to be written."""
        run = self._run_id
        return "".join(
            f"id: {run}:{seq}\nevent: {name}\ndata: {text}\n\n" for seq, name, text in self.events(entries)
        ).encode()


def type_of(entry: Entry) -> str:
    """The type of the events that an entry holds; one of a later version is told by its number."""
    if isinstance(entry, TokenBlock):
        return "TOKEN"
    try:
        return by_code(entry.code).type
    except KeyError:
        return f"UNKNOWN_{entry.code}"


def offset_of(entry: EventEntry) -> int | None:
    """How many code points of its stream's text an event leaves; None for one that leaves the text alone."""
    if entry.code not in CUTTING or entry.meta is None:
        return None
    offset: int = orjson.loads(entry.meta)["contentOffset"]
    return offset
