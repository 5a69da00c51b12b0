"""Follow a run's log and tell its value: how it grows, where it begins anew, and what it is in the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from pydantic_core import from_json

from app.core.events.fallback import FallbackStart
from app.core.events.run import RunCancelled, RunCompleted, RunExpired, RunFailed
from app.core.events.session import SessionStart
from app.core.ids import stream_id
from app.core.json_text import dumps
from app.core.partial.covers import is_beginning_of
from app.core.partial.places import Place
from app.core.partial.reader import NOTHING, PartialReader
from app.core.record import Entry, EventEntry, TokenBlock, offset_of

PARTIAL: Final = "partial"
RESET: Final = "reset"
FINAL: Final = "final"

_TERMINAL: Final = frozenset(kind.code for kind in (RunCompleted, RunFailed, RunCancelled, RunExpired))
_RESULT: Final = '{"result":'
_SHOWN: Final = frozenset({"main", "repair"})
"""Purposes of the streams that write the result."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of a value, as a client is told it."""

    seq: int
    """The event up to which it tells everything."""
    type: str
    """`partial`, `reset` or `final`."""
    text: str
    """The whole frame as JSON."""


class PartialLog:
    """Turns the entries of one run into frames. Every entry has to pass it, in order, from the first on."""

    def __init__(self, run_id: UUID, place: Place | None) -> None:
        """`place` is what is known of the whole value; with None only the result is shown."""
        self._run_id = run_id
        self._place = place
        self._reader = None if place is None else PartialReader(place)
        self._stream: int | None = None
        self._said: list[str] = []
        """The text of that stream."""
        self._where = ""
        self._next = 1

    def behind(self, entries: Sequence[Entry]) -> int | None:
        """The event after which the log has to be told, up to these entries; None where none is missing."""
        if not entries or self._place is None or entries[0].seq == self._next:
            return None
        return self._next - 1

    def tell(self, entries: Iterable[Entry]) -> None:
        """Follow entries that are shown to nobody."""
        for _ in self.frames(entries):
            pass

    def frames(self, entries: Iterable[Entry]) -> Iterator[Frame]:
        """What the entries change: everything up to a reset, or to the last of them, as one frame."""
        for entry in entries:
            self._next = entry.last_seq + 1
            if isinstance(entry, TokenBlock):
                self._hear(entry)
            else:
                yield from self._event(entry)
        yield from self._grown(self._next - 1)

    def _hear(self, block: TokenBlock) -> None:
        if self._reader is None or block.stream != self._stream:
            return
        self._said += block.texts
        self._place_of(block)
        self._reader.feed("".join(block.texts))

    def _event(self, entry: EventEntry) -> Iterator[Frame]:
        if entry.code in _TERMINAL:
            yield from self._end(entry)
        elif self._place is None or entry.stream is None:
            return
        elif entry.code == SessionStart.code and _meta(entry)["purpose"] in _SHOWN:
            begun, self._stream = self._stream is not None, entry.stream
            if begun:
                yield from self._begin_anew(entry, 0, "repair")
        elif entry.stream == self._stream and (offset := offset_of(entry)) is not None:
            reason = "fallback" if entry.code == FallbackStart.code else "retry"
            yield from self._begin_anew(entry, offset, reason)

    def _begin_anew(self, entry: EventEntry, offset: int, reason: str) -> Iterator[Frame]:
        """So many code points of the text stay; what had been shown may be void."""
        assert self._reader is not None
        assert self._place is not None
        shown = self._reader.value is not NOTHING
        self._said = ["".join(self._said)[:offset]]
        self._reader = PartialReader(self._place)
        self._reader.feed(self._said[0])
        self._place_of(entry)
        if shown:
            self._reader.changes.take()
            yield self._frame(entry.seq, RESET, f'"reason":"{reason}",{self._value()}')

    def _grown(self, seq: int) -> Iterator[Frame]:
        changes = None if self._reader is None else self._reader.changes.take()
        if changes is not None:
            yield self._frame(seq, PARTIAL, f'"changes":{changes}')

    def _end(self, entry: EventEntry) -> Iterator[Frame]:
        yield from self._grown(entry.seq - 1)
        result = "null" if entry.more is None else entry.more.removeprefix(_RESULT)[:-1]
        shown = NOTHING if self._reader is None else self._reader.value
        goes_on = "true" if shown is NOTHING or is_beginning_of(shown, result) else "false"
        meta = _meta(entry)
        error = dumps(meta["error"]).decode()
        told = f'"status":"{meta["status"]}","error":{error},"continues":{goes_on},"value":{result}'
        yield self._frame(entry.seq, FINAL, told)

    def _value(self) -> str:
        assert self._reader is not None
        value = self._reader.value
        return f'"value":{dumps(None if value is NOTHING else value).decode()}'

    def _place_of(self, entry: EventEntry | TokenBlock) -> None:
        stream = stream_id(self._run_id, entry.stream or 0)
        self._where = f'"stream_id":"{stream}","attempt":{entry.attempt},"fallback_index":{entry.fallback},'

    def _frame(self, seq: int, type: str, members: str) -> Frame:
        where = "" if type == FINAL else self._where
        text = f'{{"seq":{seq},"type":"{type}","run_id":"{self._run_id}",{where}{members}}}'
        return Frame(seq, type, text)


def _meta(entry: EventEntry) -> Any:
    return from_json(entry.meta or "{}")  # exact: the error may quote numbers of any size
