"""Frames of live batches: made once, right for everybody, whoever comes first."""

from __future__ import annotations

from itertools import product

import pytest

from app.core.record import Reader
from app.services.feed import Batch
from tests.support.logs import Writer, caught_up, reader


def written() -> tuple[Writer, list[Batch]]:
    """A log in which every second batch refers to what the batches before it said."""
    writer, batches = Writer(), []
    for piece in ("one ", "two ", "three "):
        writer.say(piece)
        batches.append(Batch(writer.commit()))
        writer.save(len(writer.texts[0]))
        batches.append(Batch(writer.commit()))
    return writer, batches


@pytest.mark.parametrize("turns", list(product((0, 1), repeat=6)), ids=lambda turns: "".join(map(str, turns)))
def test_the_frames_are_the_same_whoever_asks_first(turns: tuple[int, ...]) -> None:
    writer, batches = written()
    entries = writer.entries
    whole = reader().as_frames(entries)
    # One has read all of it; the other begins with the third batch.
    readers = [reader(), reader()]
    heard: list[list[bytes]] = [[], []]

    def hear(batch: Batch, who: int, by: Reader) -> None:
        heard[who].append(batch.frames(caught_up(entries, list(batch.entries), by)))

    for at, (batch, turn) in enumerate(zip(batches, turns, strict=True)):
        for who in (turn, 1 - turn):
            if who == 0 or at >= 2:
                hear(batch, who, readers[who])
    assert b"".join(heard[0]) == whole
    assert b"".join(heard[1]) == whole[len(b"".join(heard[0][:2])) :]


def test_frames_are_made_once() -> None:
    _, (first, *_) = written()
    assert first.frames(reader()) is first.frames(reader())


def test_one_who_took_ready_frames_still_knows_the_text() -> None:
    writer, batches = written()
    first, second = reader(), reader()
    for batch in batches[:-1]:
        batch.frames(first)
        batch.frames(second)
    last = list(batches[-1].entries)
    assert second.behind(last) is None
    assert second.as_frames(last) == batches[-1].frames(first)
    assert b'"checkpoint":"one two three "' in batches[-1].frames(first)
    assert writer.log.seq == 6
