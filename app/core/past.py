"""What the log of a run tells those who go on with it, after the process that wrote it was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from app.core.events.approval import ApprovalDecided
from app.core.lifecycle.replay import Replay
from app.core.record import Entry, EventEntry, TokenBlock, offset_of, type_of
from app.core.texts import Spans

SHUTDOWN: Final = "shutdown"
"""Why a run is taken over from a process that gave it up in good order."""


class Past:
    """A log, followed from its first event to its last; empty for a run that no other process had before."""

    def __init__(self) -> None:
        self.streams: dict[int, Replay] = {}
        """By index."""
        self.spans = Spans()
        self.last_seq = 0
        self.last_ts = 0
        """Milliseconds since the epoch."""
        self.recoveries = 0
        """How often the run was taken over from a process that was lost."""
        self.told: Counter[str] = Counter()
        """How many events of each type belong to the run itself, and not to one of its streams."""
        self.approvals_told: set[str] = set()
        """Ids of the approvals whose decision is told."""
        self._voters: set[tuple[int, str]] = set()

    @property
    def calls_taken(self) -> int:
        """Model calls that the run made, or decided on."""
        return sum(stream.calls_taken for stream in self.streams.values())

    @property
    def recovery(self) -> int:
        """Which recovery of the run is under way, from 1; one from an orderly stop is not counted."""
        return max(1, self.recoveries)

    def told_of(self, voter: int, kind: str) -> bool:
        """Whether there is such an event of a voter."""
        return (voter, kind) in self._voters

    def take(self, entries: Iterable[Entry]) -> None:
        """Follow the log on."""
        for entry in entries:
            if isinstance(entry, TokenBlock):
                self._say(entry)
            else:
                self._happen(entry)
            self.last_seq = entry.last_seq

    def _say(self, block: TokenBlock) -> None:
        self.spans.began(block)
        stream = self._stream(block.stream)
        for text in block.texts:
            stream.say(text)
        self.last_ts = block.ts + sum(block.delays)

    def _happen(self, entry: EventEntry) -> None:
        kind, self.last_ts = type_of(entry), entry.ts
        meta = orjson.loads(entry.meta or "{}")
        if entry.stream is None:
            self._tell(kind, meta)
            return
        if (offset := offset_of(entry)) is not None:
            self.spans.cut(entry.stream, offset)
        callbacks = orjson.loads(entry.callbacks or "[]")
        self._stream(entry.stream).take(kind, meta, entry.ts, callbacks)

    def _tell(self, kind: str, meta: Mapping[str, Any]) -> None:
        self.told[kind] += 1
        if kind == "RUN_RECOVERED":
            self.recoveries += meta["cause"] != SHUTDOWN
        elif kind == ApprovalDecided.type:
            self.approvals_told.add(meta["approvalId"])
        elif "index" in meta:
            self._voters.add((meta["index"], kind))

    def _stream(self, index: int) -> Replay:
        return self.streams.setdefault(index, Replay())
