"""A run as it stood after some event: a fold over the entries of its log, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

from app.core.lifecycle.replay import Replay
from app.core.moments.calls import CallsThen
from app.core.record import Entry, EventEntry, TokenBlock, type_of

ENDS: Final = frozenset({"RUN_COMPLETED", "RUN_FAILED", "RUN_CANCELLED", "RUN_EXPIRED"})
_MAIN: Final = "main"


@dataclass(slots=True)
class StreamThen:
    """One stream as it stood."""

    purpose: str
    index: int | None
    """Which voter of a consensus, from 0."""
    replay: Replay = field(default_factory=Replay)
    success: bool | None = None
    """None while it is open."""

    @property
    def status(self) -> str:
        """`open`, `completed` or `failed`."""
        if self.success is None:
            return "open"
        return "completed" if self.success else "failed"


class Moment:
    """What a log tells of its run.

    It does not tell the names of models, why a provider stopped, what anything cost, what was counted before
    the end, nor which repairs a value went through: a moment has none of these.
    """

    def __init__(self) -> None:
        self.seq = 0
        """The last event that was taken."""
        self.ts = 0
        """When that was, in milliseconds since the epoch; and so below."""
        self.status = "queued"
        self.started_ts: int | None = None
        self.ended_ts: int | None = None
        self.position: int | None = None
        """Where in the conversation the run begins; None before that, and for runs of older versions."""
        self.answered = False
        """Whether its instruction and answer are in the conversation."""
        self.validation: dict[str, Any] | None = None
        """`ok`, `kind` and `errors`."""
        self.usage: dict[str, Any] | None = None
        """Of all its attempts, once it has ended."""
        self.error: dict[str, Any] | None = None
        self.streams: dict[int, StreamThen] = {}
        self.calls = CallsThen()

    @property
    def ended(self) -> bool:
        """Whether nothing comes after it."""
        return self.ended_ts is not None

    @property
    def attempts(self) -> int:
        """How often models were asked, over all streams."""
        return sum(stream.replay.openings for stream in self.streams.values())

    def take(self, entries: Iterable[Entry]) -> Moment:
        """Go on to the last event of these entries, which follow those that were taken; the moment itself."""
        for entry in entries:
            if isinstance(entry, TokenBlock):
                self._tokens(entry)
            else:
                meta = {} if entry.meta is None else from_json(entry.meta)
                self._event(type_of(entry), meta, entry)
            self.seq = entry.last_seq
        return self

    def _tokens(self, block: TokenBlock) -> None:
        replay = self._stream(block.stream).replay
        for text in block.texts:
            replay.take("TOKEN", {"text": text})
        self.ts = block.ts + sum(block.delays)

    def _stream(self, index: int) -> StreamThen:
        return self.streams.setdefault(index, StreamThen(_MAIN, None))

    def _event(self, kind: str, meta: Mapping[str, Any], entry: EventEntry) -> None:
        self.ts = entry.ts
        if self.status == "waiting":
            self.status = "running"  # whatever comes, somebody has taken it up
        self.calls.take(kind, meta, entry.stream)
        if entry.stream is not None:
            self._of_stream(kind, meta, entry.stream)
        elif kind in ENDS:
            self.status, self.ended_ts = meta["status"], entry.ts
            self.usage, self.error = meta["usage"], meta["error"]
        else:
            self._of_run(kind, meta)

    def _of_stream(self, kind: str, meta: Mapping[str, Any], index: int) -> None:
        if kind == "SESSION_START":
            self.streams[index] = StreamThen(meta["purpose"], meta.get("index"))
        stream = self._stream(index)
        stream.replay.take(kind, meta)
        if kind == "SESSION_END":
            stream.success = meta["success"]
        elif kind == "COMPLETE" and stream.purpose == _MAIN:
            self.answered = True

    def _of_run(self, kind: str, meta: Mapping[str, Any]) -> None:
        match kind:
            case "RUN_STARTED":
                self.status, self.started_ts = "running", self.ts
                self.position = meta.get("position")
            case "RUN_WAITING":
                self.status = "waiting"
                self.calls.wait()
            case "RESULT_VALIDATED":
                ok = meta["ok"]
                self.validation = {"ok": ok, "kind": None if ok else meta["kind"], "errors": meta["errors"]}
            case "CONSENSUS_END":
                self.answered = meta["success"]
