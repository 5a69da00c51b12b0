"""Number, stamp and append events: the open log of a run. Only its holder writes for a running run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.core.events.base import Event
from app.core.json_text import storable
from app.core.past import Past
from app.core.record import MAX_BLOCK, Entry, TokenBlock, offset_of
from app.core.texts import Spans
from app.ports.ambient import Clock
from app.ports.storage import Flush, Row, RunRecord
from app.services.entries import entry_of, in_order, numbered
from app.services.feed import Feed

BACKLOG = 512
"""Uncommitted entries at which a run must stop reading from its model."""


class LeaseLost(Exception):
    """Another process holds the run's lease; this one may write nothing more for it."""


class RecordRejected(Exception):
    """The database refused the run's data."""


class RunLog:
    """The open log of one run, held by the process that has its lease."""

    def __init__(
        self, run: RunRecord, feed: Feed, clock: Clock, touch: Callable[[RunLog, bool], None]
    ) -> None:
        self.run = run
        self.feed = feed
        self._clock = clock
        self._touch = touch
        self._seq = run.last_seq
        self._ts = 0
        self._entries: list[Entry] = []
        self._rows: list[Row] = []
        self._end: RunRecord | None = None
        self._block: TokenBlock | None = None
        """The one that the last token joined."""
        self._open: dict[tuple[int, int, int], TokenBlock] = {}
        """Those that tokens may still join, by stream, attempt and fallback; the last of the entries."""
        self._spans = Spans()
        self._waiting: list[asyncio.Future[None]] = []
        self._failure: Exception | None = None
        self.in_flight = False

    def follow(self, past: Past) -> None:
        """Go on with a log that another process has written so far."""
        self._ts, self._spans = past.last_ts, past.spans

    @property
    def lost(self) -> bool:
        """Whether the run is somebody else's."""
        return isinstance(self._failure, LeaseLost)

    @property
    def seq(self) -> int:
        """Number of the last event given."""
        return self._seq

    @property
    def last_ts(self) -> int:
        """Time of the last event, milliseconds since the epoch."""
        return self._ts

    @property
    def backlog(self) -> bool:
        """Whether so much is uncommitted that the run should wait."""
        return len(self._entries) >= BACKLOG

    def _stamp(self) -> int:
        """The time now; never before an earlier event's."""
        now = self._clock.wall_ms()
        if now > self._ts:
            self._ts = now
        return self._ts

    def token(self, text: str, stream: int, attempt: int, fallback: int) -> None:
        """Append a TOKEN event."""
        if self._failure is not None:
            raise self._failure
        ts = self._stamp()
        self._seq += 1
        block = self._block
        if (
            block is None
            or len(block.texts) >= MAX_BLOCK
            or block.attempt != attempt
            or block.stream != stream
            or block.fallback != fallback
        ):
            self._block = block = self._block_of(stream, attempt, fallback)
        block.delays.append(ts)
        block.texts.append(storable(text))
        self._touch(self, self.feed.watchers > 0)

    def _block_of(self, stream: int, attempt: int, fallback: int) -> TokenBlock:
        """The block that the next token joins: of its own stream also when others have spoken since.

        Tokens of streams that speak by turns would else take a row each. What nobody has seen yet has no
        order between streams: `numbered` gives it one.
        """
        place = (stream, attempt, fallback)
        block = self._open.get(place)
        if block is None or len(block.texts) >= MAX_BLOCK:
            block = self._open[place] = TokenBlock(self._seq, 0, stream, attempt, fallback)
            self._entries.append(block)
            self._spans.began(block)
        return block

    def event(
        self,
        event: Event,
        stream: int | None = None,
        attempt: int | None = None,
        fallback: int | None = None,
        *,
        more: str | None = None,
        urgent: bool = True,
    ) -> None:
        """Append any other event; `more` joins its meta when read, but is stored with the run.

        One that is not urgent may wait for company also where somebody watches.
        """
        if self._failure is not None:
            raise self._failure
        if len(self._open) > 1:
            # It may refer to their tokens, whose order is settled now.
            in_order(self._entries)
        # Made before its number counts: what cannot be made leaves no gap.
        spans = self._spans
        entry = entry_of(event, self._seq + 1, self._stamp(), stream, attempt, fallback, more, spans)
        self._seq += 1
        if stream is not None and (offset := offset_of(entry)) is not None:
            spans.cut(stream, offset)
        self._close_blocks()
        self._entries.append(entry)
        self._touch(self, urgent and self.feed.watchers > 0)

    def write(self, *rows: Row) -> None:
        """Have rows committed together with the events so far; who needs them stored awaits `committed`."""
        if self._failure is not None:
            raise self._failure
        self._rows.extend(rows)
        self._touch(self, self.feed.watchers > 0)

    def end(self, run: RunRecord) -> None:
        """Have the run ended, or left waiting, with everything appended so far; nothing may follow."""
        run.last_seq = self._seq
        self._end = run
        self._touch(self, True)

    async def committed(self) -> None:
        """Wait until everything appended so far is stored. Raises LeaseLost or RecordRejected."""
        if self._failure is not None:
            raise self._failure
        if not self._pending and not self.in_flight:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._pending or not self.in_flight:
            self._touch(self, True)
        await future

    @property
    def _pending(self) -> bool:
        return bool(self._entries or self._rows or self._end)

    def settled(self) -> list[asyncio.Future[None]]:
        """Who waited for no more than the flush that has just ended."""
        if self._pending:
            return []
        waiting, self._waiting = self._waiting, []
        return waiting

    def _close_blocks(self) -> None:
        self._block = None
        self._open = {}

    def take(self) -> tuple[Flush, list[asyncio.Future[None]]]:
        """Everything that waits to be written, and who waits for it."""
        flush = Flush(
            self.run.id,
            self.run.project_id,
            self.run.branch_id,
            self.run.epoch,
            numbered(self._entries),
            self._rows,
            self._end,
        )
        waiting = self._waiting
        self._entries, self._rows, self._end, self._waiting = [], [], None, []
        self._close_blocks()
        return flush, waiting

    def join(self, other: RunLog) -> None:
        """Be written and followed as another log of the same run is."""
        self.feed, self._touch = other.feed, other._touch

    def fail(self, failure: Exception) -> None:
        """Let the run's task find out, wherever it is, that it cannot write; nothing more of it will be."""
        self._failure = failure
        self._entries, self._rows, self._end = [], [], None
        self._close_blocks()
        for future in self._waiting:
            if not future.done():
                future.set_exception(failure)
        self._waiting = []
