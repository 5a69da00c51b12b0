"""The decoder finds the same events however the bytes are cut."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.sse import EventTooLarge, ServerSentEvent, SseDecoder

Event = ServerSentEvent


def decode(*pieces: bytes, limit: int = 1_000_000) -> list[Event]:
    decoder = SseDecoder(limit)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    last = decoder.finish()
    return events if last is None else [*events, last]


def bytewise(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [Event(b"a"), Event(b"b")]),
        (b"data:a\n\n", [Event(b"a")]),
        (b"data:  a \n\n", [Event(b" a ")]),
        (b"data\n\n", [Event(b"")]),
        (b"data: a\ndata: b\n\n", [Event(b"a\nb")]),
        (b"data: a\ndata\ndata:\n\n", [Event(b"a\n\n")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [Event(b"a", "error"), Event(b"b")]),
        (b"event:\ndata: a\n\n", [Event(b"a", "message")]),
        (b"id: 7\nretry: 5\ndata: a\n\n", [Event(b"a", id="7")]),
        (b"id: 7\0\ndata: a\n\n", [Event(b"a")]),
        (b": hello\n\n:\n\ndata: a\n\n", [Event(b"a")]),
        (b": hello\ndata: a\n: more\n\n", [Event(b"a")]),
        (b"event: nothing\n\n\n\n\ndata: a\n\n", [Event(b"a")]),
        (b"unknown: x\ndatax: y\ndata: a\n\n", [Event(b"a")]),
        (b"\n\n\ndata: a\n\n\n", [Event(b"a")]),
        (b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n", [Event(b"a"), Event(b"\xef\xbb\xbfb")]),
        (b"\xef\xbb\xbfevent: x\ndata: a\n\n", [Event(b"a", "x")]),
        ("data: naïve 日本 🦦\n\n".encode(), [Event("naïve 日本 🦦".encode())]),
        ("data: a\u2028b\x85c\n\n".encode(), [Event("a\u2028b\x85c".encode())]),
        (b"data: a\n\ndata: unfinished", [Event(b"a"), Event(b"unfinished")]),
        (b"data: a\n\ndata: unfinished\n", [Event(b"a"), Event(b"unfinished")]),
        (b"", []),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_decoded(body: bytes, events: list[Event], end: bytes) -> None:
    body = body.replace(b"\n", end)
    assert decode(body) == events
    assert decode(*bytewise(body)) == events
    for at in range(len(body)):
        assert decode(body[:at], body[at:]) == events, at


def test_line_ends_of_all_kinds_in_one_stream() -> None:
    assert decode(*bytewise(b"data: a\r\n\rdata: b\n\r\ndata: c\r\r")) == [
        Event(b"a"),
        Event(b"b"),
        Event(b"c"),
    ]


fields = st.sampled_from([b"data: ", b"data:", b"event: ", b"id: ", b": ", b"", b"\xef\xbb\xbf", b"other"])
values = st.sampled_from([b"", b"x", b"{}", "ü🦦".encode(), b" ", b"a:b", b"\xff"])
ends = st.sampled_from([b"\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\r", b"\r\r"])
bodies = st.lists(st.tuples(fields, values, ends).map(b"".join), max_size=12).map(b"".join)


@given(bodies, st.lists(st.integers(0, 200), max_size=8))
def test_cuts_change_nothing(body: bytes, cuts: list[int]) -> None:
    borders = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    pieces = [body[a:b] for a, b in itertools.pairwise(borders)]
    assert decode(*pieces) == decode(body) == decode(*bytewise(body))


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_taken(pieces: list[bytes]) -> None:
    assert decode(*pieces) == decode(b"".join(pieces))


def test_an_event_over_the_limit_is_refused_whether_it_is_finished_or_not() -> None:
    for body in (b"data: " + b"x" * 100, b"data: " + b"x" * 100 + b"\n\n", b"data: xx\n" * 20 + b"\n"):
        with pytest.raises(EventTooLarge):
            decode(body, limit=64)
        with pytest.raises(EventTooLarge):
            decode(*bytewise(body), limit=64)


def test_the_events_before_one_over_the_limit_are_given() -> None:
    events: list[Event] = []
    with pytest.raises(EventTooLarge):
        events.extend(SseDecoder(64).feed(b"data: a\n\ndata: " + b"x" * 100))
    assert events == [Event(b"a")]


def test_the_limit_is_for_one_event_and_not_for_the_stream() -> None:
    event = b"data: " + b"x" * 40 + b"\n\n"
    assert len(decode(*[event] * 100, limit=64)) == 100
    assert len(decode(*bytewise(event * 100), limit=64)) == 100


def seconds_for(length: int) -> float:
    """The best of three runs over one long line that comes in small pieces."""
    piece = b"x" * 16
    runs = []
    for _ in range(3):
        decoder = SseDecoder(length * 2)
        began = time.process_time()
        list(decoder.feed(b"data: "))
        for _ in range(length // len(piece)):
            list(decoder.feed(piece))
        assert [len(event.data) for event in decoder.feed(b"\n\n")] == [length]
        runs.append(time.process_time() - began)
    return min(runs)


def test_work_grows_with_the_length_of_a_line_and_not_with_its_square() -> None:
    assert seconds_for(1_600_000) < 40 * seconds_for(100_000)
