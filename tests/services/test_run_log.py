"""What a run says is numbered and timed without a gap, and tokens take few rows, whoever speaks by turns."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.core.events.run import RunStarted
from app.core.record import MAX_BLOCK, Entry, EventEntry, TokenBlock
from app.ports.storage import RunRecord
from app.services.feed import Feed
from app.services.run_log import RunLog
from tests.support.ambient import NOW_MS, CountingIds, FakeClock

IDS = CountingIds()


class Log(RunLog):
    """A log that is taken from by hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        run = RunRecord(IDS.new(), IDS.new(), None, "consensus", "running", "{}", datetime.now(UTC))
        super().__init__(run, Feed(0), self.clock, lambda log, urgent: None)

    def taken(self) -> list[Entry]:
        """What is to be written now."""
        return list(self.take()[0].entries)


def expanded(entries: list[Entry]) -> list[tuple[int, int, Any]]:
    """(seq, ts, what) of every event, what being (stream, text) of a token and None of another event."""
    out: list[tuple[int, int, Any]] = []
    for entry in entries:
        if isinstance(entry, EventEntry):
            out.append((entry.seq, entry.ts, None))
            continue
        ts = entry.ts
        for at, (text, delay) in enumerate(zip(entry.texts, entry.delays, strict=True)):
            ts += delay
            out.append((entry.seq + at, ts, (entry.stream, text)))
    return out


def blocks(entries: list[Entry]) -> list[tuple[int, str]]:
    return [(entry.stream, "".join(entry.texts)) for entry in entries if isinstance(entry, TokenBlock)]


def test_streams_that_speak_by_turns_take_a_block_each() -> None:
    log = Log()
    for letter in "abcd":
        for stream in range(3):
            log.clock.now_ms += 5
            log.token(letter, stream, 1, 0)
    entries = log.taken()
    assert blocks(entries) == [(0, "abcd"), (1, "abcd"), (2, "abcd")]
    assert [entry.seq for entry in entries] == [1, 5, 9]


def test_an_event_of_any_stream_keeps_its_place() -> None:
    log = Log()
    for stream in (0, 1, 0):
        log.token("a", stream, 1, 0)
    log.event(RunStarted(), 1, 1, 0)
    for stream in (0, 1, 0):
        log.token("b", stream, 1, 0)
    entries = log.taken()
    assert blocks(entries) == [(0, "aa"), (1, "a"), (0, "bb"), (1, "b")]
    assert [seq for seq, _, what in expanded(entries) if what is None] == [4]


def test_what_is_being_written_takes_no_more() -> None:
    log = Log()
    log.token("a", 0, 1, 0)
    log.token("a", 1, 1, 0)
    assert blocks(log.taken()) == [(0, "a"), (1, "a")]
    log.token("b", 0, 1, 0)
    (entry,) = log.taken()
    assert (entry.seq, blocks([entry])) == (3, [(0, "b")])


def test_another_attempt_begins_a_block() -> None:
    log = Log()
    for attempt in (1, 2, 1):
        log.token("a", 0, attempt, 0)
    assert blocks(log.taken()) == [(0, "aa"), (0, "a")]


def test_a_block_has_a_bound_by_turns_too() -> None:
    log = Log()
    for _ in range(MAX_BLOCK + 1):
        for stream in range(2):
            log.token("a", stream, 1, 0)
    assert [(stream, len(text)) for stream, text in blocks(log.taken())] == [
        (0, MAX_BLOCK),
        (1, MAX_BLOCK),
        (0, 1),
        (1, 1),
    ]


def test_the_time_of_a_stream_that_speaks_alone_is_kept_exactly() -> None:
    log = Log()
    for wait_ms in (0, 7, 0, 300):
        log.clock.now_ms += wait_ms
        log.token("a", 0, 1, 0)
    (block,) = log.taken()
    assert isinstance(block, TokenBlock)
    assert (block.ts, block.delays) == (NOW_MS, [0, 7, 0, 300])


steps = st.lists(
    st.tuples(st.just("token"), st.integers(0, 3))
    | st.tuples(st.sampled_from(["event", "take", "back"]), st.just(0))
    | st.tuples(st.just("wait"), st.integers(0, 9)),
    max_size=60,
)


@given(steps)
def test_nothing_is_lost_and_no_stream_changes_its_order(steps: list[tuple[str, int]]) -> None:
    log, written = Log(), list[Entry]()
    said: dict[int, list[str]] = {}
    places, count = [], 0
    for at, (step, value) in enumerate(steps):
        match step:
            case "token":
                log.token(str(at), value, 1, 0)
                said.setdefault(value, []).append(str(at))
            case "event":
                log.event(RunStarted())
                places.append(count + 1)
            case "take":
                written += log.taken()
            case "wait":
                log.clock.now_ms += value
            case "back":
                log.clock.now_ms -= 3
        count += step in ("token", "event")
    written += log.taken()
    events = expanded(written)
    assert [seq for seq, _, _ in events] == list(range(1, count + 1))
    assert all(before[1] <= after[1] for before, after in pairwise(events))
    assert [seq for seq, _, what in events if what is None] == places
    for stream, texts in said.items():
        assert [what[1] for _, _, what in events if what is not None and what[0] == stream] == texts
