"""Texts in a log: stored by reference, read as text, the same for whoever reads from wherever."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.events.base import TextRef
from app.core.record import Entry, EventEntry, Reader
from app.core.texts import MAX_SHOWN, Beginnings, Spans
from tests.support.logs import Writer, after, caught_up, reader, until

STREAMS = st.sampled_from([0, 0, 0, 1, 1, 2])
PIECES = st.one_of(
    st.text('aé日🦦"\\\n', min_size=1, max_size=4),
    st.sampled_from(['{"$text":[1,2,3]}', '"x":{"$text":[1,2,3]}']),
    st.builds(lambda c, n: c * n, st.sampled_from("ab🦦"), st.sampled_from([1000, MAX_SHOWN - 1, 4500])),
)
PART = st.sampled_from([0.0, 0.3, 0.9, 1.0])


def say(piece: str, stream: int, writer: Writer) -> None:
    writer.say(piece, stream)


def cut(part: float, stream: int, writer: Writer) -> None:
    writer.cut(int(len(writer.texts.get(stream, "")) * part), stream)


def save(part: float, stream: int, writer: Writer) -> None:
    writer.save(int(len(writer.texts.get(stream, "")) * part), stream)


def commit(_: int, writer: Writer) -> None:
    writer.commit()


STEPS = st.one_of(
    st.builds(partial, st.just(say), PIECES, STREAMS),
    st.builds(partial, st.just(say), st.sampled_from("xyz"), STREAMS),
    st.builds(partial, st.just(save), PART, STREAMS),
    st.builds(partial, st.just(cut), PART, STREAMS),
    st.sampled_from([Writer.fall_back, Writer.complete, Writer.take_over]),
    st.builds(partial, st.just(commit), st.just(0)),
)


@st.composite
def logs(draw: st.DrawFn) -> Writer:
    """Interleaved streams with restarts, cuts and references, in commits of any size."""
    writer = Writer()
    for step in draw(st.lists(STEPS, min_size=5, max_size=40)):
        step(writer)
    writer.complete()
    return writer


def events(by: Reader, entries: list[Entry]) -> list[Any]:
    return list(by.events(entries))


def callbacks(by: Reader, entries: list[Entry]) -> list[Any]:
    return list(by.callbacks(entries))


VIEWS: list[Callable[[Reader, list[Entry]], list[Any]]] = [events, callbacks]


@settings(max_examples=300)
@given(logs())
def test_a_reference_reads_as_the_text_that_stood_there(writer: Writer) -> None:
    read = {seq: orjson.loads(text) for seq, _, text in reader().events(writer.entries)}
    for seq, text in writer.shown.items():
        meta, (callback,) = read[seq]["meta"], read[seq]["callbacks"]
        holder, name = (meta["state"], "content") if "state" in meta else (meta, "checkpoint")
        assert holder[name] == text
        assert (f"{name}Ref" in holder) == (text is None)
        assert callback["args"][0] == (holder if "state" in meta else text)


@given(logs())
def test_numbers_and_times_go_on_whoever_writes(writer: Writer) -> None:
    read = [orjson.loads(text) for _, _, text in reader().events(writer.entries)]
    assert [event["seq"] for event in read] == list(range(1, len(read) + 1))
    assert all(before["ts"] <= event["ts"] for before, event in pairwise(read))


@given(logs())
def test_a_long_text_is_told_by_where_it_stands(writer: Writer) -> None:
    entries = writer.entries
    read = {seq: orjson.loads(text) for seq, _, text in reader().events(entries)}
    for entry in (e for e in entries if isinstance(e, EventEntry)):
        for place in references_in(read[entry.seq]["meta"]):
            assert entry.stream is not None
            told = text_between(entries, entry.stream, place["from_seq"], place["to_seq"])
            assert len(told) >= place["length"] > MAX_SHOWN


def references_in(meta: Any) -> list[dict[str, int]]:
    """Every `…Ref` member, at any depth."""
    if not isinstance(meta, dict):
        return []
    here = [value for name, value in meta.items() if name.endswith("Ref")]
    return here + [found for value in meta.values() for found in references_in(value)]


def text_between(entries: list[Entry], stream: int, from_seq: int, to_seq: int) -> str:
    """What a client makes of that part of the log alone."""
    text = ""
    part = until(after(entries, from_seq - 1), to_seq)
    for event in map(orjson.loads, reader().as_json(e for e in part if e.stream == stream)):
        text = text[: event["meta"].get("contentOffset", len(text))] + event["meta"].get("text", "")
    return text


@settings(max_examples=60)
@given(logs(), st.sampled_from(VIEWS))
def test_whoever_begins_anywhere_reads_the_same(writer: Writer, view: Any) -> None:
    entries = writer.entries
    whole = view(reader(), entries)
    for cursor in range(writer.log.seq):
        rest = after(entries, cursor)
        assert view(caught_up(entries, rest, reader()), rest) == [item for item in whole if item[0] > cursor]


@settings(max_examples=60)
@given(logs(), st.sampled_from(VIEWS), st.data())
def test_pages_and_commits_of_any_size_read_the_same(writer: Writer, view: Any, data: st.DataObject) -> None:
    entries = writer.entries
    whole = view(reader(), entries)
    started = data.draw(st.integers(0, writer.log.seq - 1))
    one, cursor, found = reader(), started, []
    while cursor < writer.log.seq:
        end = cursor + data.draw(st.integers(1, 7))
        part = until(after(entries, cursor), end)
        alone = view(caught_up(entries, part, reader()), part)
        if data.draw(st.booleans()):
            found += view(caught_up(entries, part, one), part)
        else:
            caught_up(entries, part, one).tell(part)
            found += alone
        assert found[len(found) - len(alone) :] == alone
        cursor = end
    assert found == [item for item in whole if item[0] > started]


@given(logs())
def test_who_reads_from_the_beginning_is_never_behind(writer: Writer) -> None:
    one, whole = reader(), writer.entries
    for entry in whole:
        assert one.behind([entry]) is None
        one.tell([entry])


@given(logs())
def test_a_filter_hides_no_text_from_the_reader(writer: Writer) -> None:
    kinds = {"CHECKPOINT_SAVED", "COMPLETE"}
    entries = writer.entries
    assert list(reader().events(entries, kinds)) == [
        item for item in reader().events(entries) if item[1] in kinds
    ]


@pytest.mark.parametrize("kept", [1, 4, MAX_SHOWN - 1, MAX_SHOWN, MAX_SHOWN + 1, 5_000])
def test_a_retry_goes_on_where_its_event_says(kept: int) -> None:
    writer = Writer()
    for piece in ("🦦" * 3, "a" * 4_000, "b" * 2_000):
        writer.say(piece)
    writer.cut(kept)
    writer.say("end")
    writer.complete()
    ((_, _, text),) = reader().events(writer.entries, {"COMPLETE"})
    state = orjson.loads(text)["meta"]["state"]
    assert state["content"] == writer.shown[writer.log.seq]
    assert state.get("contentRef", {}).get("length", len(writer.texts[0])) == kept + 3


def test_a_reader_keeps_no_more_than_can_be_shown() -> None:
    beginnings = Beginnings()
    for seq in range(1, 1_001):
        beginnings.said(0, seq, ["🦦" * 1_000])
    assert len(pickle.dumps(beginnings)) < 4 * MAX_SHOWN + 1_000


def test_a_gap_before_what_is_to_be_shown_is_noticed() -> None:
    writer = Writer()
    for piece in ("one", "two"):
        writer.say(piece)
        writer.commit()
    writer.save(6)
    first, _, checkpoint = writer.entries
    one = reader()
    one.tell([first])
    assert one.behind([checkpoint]) == 0


def test_a_reader_that_was_told_with_a_gap_does_not_guess() -> None:
    writer = Writer()
    for piece in ("one", "two", "three"):
        writer.say(piece)
        writer.cut(len(writer.texts[0]))
    writer.save(11)
    first, *others = writer.entries
    one = reader()
    one.tell([first, *others[2:-1]])
    assert one.behind(others[-1:]) == 0
    (told,) = map(orjson.loads, one.as_json(others[-1:]))
    assert told["meta"] == {
        "checkpoint": None,
        "checkpointRef": {"from_seq": 1, "to_seq": 5, "length": 11},
        "tokenCount": 1,
    }


def test_what_is_needed_is_told_from_where_the_text_begins() -> None:
    writer = Writer()
    writer.say("void")
    writer.cut(0)
    for _ in range(40):
        writer.say("word ")
    writer.save(200)
    entries = writer.entries
    assert reader().behind(after(entries, 30)) == 2
    assert reader().behind(after(entries, 2)) is None
    assert reader().behind(after(entries, 1)) is None


@pytest.mark.parametrize("tokens", [1_000, 10_000])
def test_checkpoints_are_stored_in_a_few_bytes_each(tokens: int) -> None:
    writer = Writer()
    for count in range(1, tokens + 1):
        writer.say("word ")
        if count % 5 == 0:
            writer.save(count * 5)
    stored = [entry for entry in writer.entries if isinstance(entry, EventEntry)]
    assert len(stored) == tokens // 5
    assert all(len(entry.meta or "") + len(entry.callbacks or "") < 160 for entry in stored)


def test_a_text_that_the_log_does_not_hold_cannot_be_referred_to() -> None:
    spans = Spans()
    assert spans.stored({"checkpoint": TextRef(0)}, 0) == {"checkpoint": {"$text": (0, 0, 0)}}
    with pytest.raises(LookupError):
        spans.stored([{"state": TextRef(1)}], 0)
    writer = Writer()
    with pytest.raises(LookupError):
        writer.save(1)
    assert writer.log.seq == 0
