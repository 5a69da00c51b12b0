"""Logs that are written by hand: one session of a stream, or several at once, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.core.events.base import Callback, TextRef
from app.core.events.continuation import CheckpointSaved
from app.core.events.fallback import FallbackStart
from app.core.events.session import AttemptStart, Complete
from app.core.past import Past
from app.core.record import Entry, Reader, TokenBlock
from app.core.texts import MAX_SHOWN
from app.ports.storage import RunRecord
from app.services.feed import Feed
from app.services.run_log import RunLog
from tests.support.ambient import NOW_MS, CountingIds, FakeClock

RUN, BRANCH = CountingIds().new(), UUID(int=2)


def run_record() -> RunRecord:
    """A running run."""
    return RunRecord(RUN, UUID(int=1), BRANCH, "operate", "running", "{}", datetime.now(UTC))


def reader() -> Reader:
    """One that has read nothing yet."""
    return Reader(RUN, BRANCH, '{"request":"42"}')


@dataclass
class Writer:
    """Writes a log, and knows by other means what its references mean."""

    log: RunLog = field(
        default_factory=lambda: RunLog(run_record(), Feed(0), FakeClock(), lambda log, urgent: None)
    )
    texts: dict[int, str] = field(default_factory=dict)
    """By stream."""
    attempts: dict[int, int] = field(default_factory=dict)
    shown: dict[int, Any] = field(default_factory=dict)
    """By seq: the text that a reader has to see in the place of a reference; None for a long one."""
    _entries: list[Entry] = field(default_factory=list)

    def say(self, text: str, stream: int = 0) -> None:
        """A token."""
        self.texts[stream] = self.texts.get(stream, "") + text
        self.log.token(text, stream, self.attempts.get(stream, 1), 0)

    def cut(self, offset: int, stream: int = 0) -> None:
        """A retry that keeps so much of the text."""
        self.texts[stream] = self.texts.get(stream, "")[:offset]
        self.attempts[stream] = attempt = self.attempts.get(stream, 1) + 1
        self.log.event(AttemptStart(attempt, True, False, content_offset=offset), stream, attempt, 0)

    def fall_back(self, stream: int = 0) -> None:
        """A fallback, which keeps nothing."""
        self.texts[stream] = ""
        event = FallbackStart(0, 1, "previous_failed", content_offset=0)
        self.log.event(event, stream, self.attempts.get(stream, 1), 1)

    def save(self, length: int, stream: int = 0) -> None:
        """A checkpoint of the first code points."""
        reference = TextRef(length)
        event = CheckpointSaved(reference, token_count=1).then(Callback("on_checkpoint", (reference, 1)))
        self._refer(event, length, stream)

    def complete(self, stream: int = 0) -> None:
        """The end of a good answer."""
        length = len(self.texts.get(stream, ""))
        state = {"content": TextRef(length), "tokenCount": 1, "checkpoint": ""}
        event = Complete(1, length, state).then(Callback("on_complete", (state,)))
        self._refer(event, length, stream)

    def take_over(self) -> None:
        """Another process goes on with the log, whose clock is a second behind."""
        past = Past()
        past.take(self.entries)
        run = run_record()
        run.last_seq = past.last_seq
        clock = FakeClock(NOW_MS - 1_000)
        self.log = RunLog(run, Feed(past.last_seq), clock, lambda log, urgent: None)
        self.log.follow(past)

    def _refer(self, event: CheckpointSaved | Complete, length: int, stream: int) -> None:
        self.log.event(event, stream, self.attempts.get(stream, 1), 0)
        text = self.texts.get(stream, "")[:length]
        self.shown[self.log.seq] = text if length <= MAX_SHOWN else None

    def commit(self) -> Sequence[Entry]:
        """What was written since the last commit."""
        entries = list(self.log.take()[0].entries)
        self._entries += entries
        return entries

    @property
    def entries(self) -> list[Entry]:
        """The whole log."""
        self.commit()
        return self._entries


def after(entries: Sequence[Entry], seq: int) -> list[Entry]:
    """As a store gives them: what comes after an event, a block in its middle too."""
    rest = [entry for entry in entries if entry.last_seq > seq]
    return [entry.after(seq) if isinstance(entry, TokenBlock) else entry for entry in rest]


def until(entries: Sequence[Entry], seq: int) -> list[Entry]:
    """What comes up to an event."""
    kept = [entry for entry in entries if entry.seq <= seq]
    return [e.before(seq + 1) if isinstance(e, TokenBlock) else e for e in kept]


def caught_up(log: Sequence[Entry], entries: Sequence[Entry], by: Reader) -> Reader:
    """The reader, told what it needs before it can show these entries of the log."""
    behind = by.behind(entries)
    if behind is not None:
        by.tell(until(after(log, behind), entries[0].seq - 1))
        assert by.behind(entries) is None
    return by
