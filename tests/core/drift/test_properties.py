"""What holds for every monitor, whatever is written."""

from __future__ import annotations

import sys
from collections import deque
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.drift.base import HEAD, STEP, WINDOW, Passage
from app.core.drift.monitor import KEPT, KINDS, DriftMonitor, DriftOptions, Judgement, Skipped
from tests.core.drift.watching import prose

anything = st.text(st.characters(), max_size=700)
"""Lone surrogates included."""
fragments = st.sampled_from(
    [
        "As an AI, I cannot say. ",
        "Sure!\n",
        "<|im_start|>",
        "- one\n- two\n- three\n- four\n- five\n",
        prose(1_600),
        "We walk along the river and talk about the rain. " * 3,
        "Furthermore, it holds; moreover, it is known, and consequently nothing is due. " + prose(100),
        "yeah lol dude it's kinda late, haha. ",
        "q9$Zé{w}Ж3#x" * 30,
        "\n",
        "İ" * 260,
        "|" * 300,
    ]
)
parts = st.lists(fragments | anything, max_size=12)


def judged(monitor: DriftMonitor, texts: list[str]) -> list[Judgement | Skipped]:
    return [monitor.check(text) for text in texts]


@given(parts)
def test_every_text_can_be_judged(texts: list[str]) -> None:
    for judgement in judged(DriftMonitor(DriftOptions()), texts):
        if isinstance(judgement, Skipped):
            assert judgement.reason == "too_little_text"
        else:
            assert judgement.score == max(judgement.metrics.values(), default=0.0)
            assert all(0.0 < confidence <= 1.0 for confidence in judgement.metrics.values())
            assert judgement.metrics.keys() <= KINDS
            assert sorted(judgement.kinds) == sorted(judgement.metrics)


@given(parts, parts)
def test_monitors_do_not_influence_each_other(first: list[str], second: list[str]) -> None:
    alone = judged(DriftMonitor(DriftOptions()), first)
    one, other = DriftMonitor(DriftOptions()), DriftMonitor(DriftOptions())
    together = []
    for mine, foreign in zip_longest(first, second):
        if mine is not None:
            together.append(one.check(mine))
        if foreign is not None:
            other.check(foreign)
    assert together == alone


@given(parts, st.sampled_from(sorted(KINDS)))
def test_kinds_do_not_influence_each_other(texts: list[str], kind: str) -> None:
    for whole, single in zip(
        judged(DriftMonitor(DriftOptions()), texts),
        judged(DriftMonitor(DriftOptions(types=frozenset({kind}))), texts),
        strict=True,
    ):
        if isinstance(whole, Judgement):
            assert isinstance(single, Judgement)
            assert single.metrics == {name: found for name, found in whole.metrics.items() if name == kind}


# Not more than is shown to the detectors: of a longer one they know the end alone.
@given(st.lists(fragments | anything, max_size=9), fragments | anything)
def test_what_is_kept_counts_as_if_it_had_been_checked(kept: list[str], new: str) -> None:
    resumed, through = DriftMonitor(DriftOptions()), DriftMonitor(DriftOptions())
    resumed.take("".join(kept))
    through.check("".join(kept))
    assert resumed.check(new) == through.check(new)


@given(st.lists(st.text(st.characters(), max_size=STEP)))
def test_a_passage_shows_the_ends_of_the_answer(texts: list[str]) -> None:
    passage, answer = Passage(), ""
    for text in texts:
        passage.grow(text)
        answer += text
        assert (passage.new, passage.length) == (text, len(answer))
        assert (passage.head, passage.window) == (answer[:HEAD], answer[-WINDOW:])
        assert len(passage.lower) <= WINDOW


WITHOUT_END = {
    "one line": prose(200_000),
    "lines": prose(200_000).replace(". ", ".\n"),
    "a list": "- one thing\n" * 20_000,
    "casual": prose(200_000).replace("The ", "yeah, thus the "),
    "jumble": "".join(chr(0x4E00 + i * 7919 % 9_000) for i in range(200_000)),
    "nothing": " " * 200_000,
    "loop": "We walk along the river and talk about the rain. " * 4_000,
}


@pytest.mark.parametrize("text", WITHOUT_END.values(), ids=WITHOUT_END)
def test_memory_is_bounded(text: str) -> None:
    monitor = DriftMonitor(DriftOptions())
    for start in range(0, 10_000, 170):
        monitor.check(text[start : start + 170])
    early = weight(monitor)
    for start in range(10_000, len(text), 170):
        monitor.check(text[start : start + 170])
    assert weight(monitor) < early + 4_000
    monitor.check(text)
    monitor.take(text)
    assert len(text) > 2 * KEPT
    assert weight(monitor) < early + 4_000


def weight(thing: Any) -> int:
    """Bytes of `thing` and of all that only it holds."""
    size = sys.getsizeof(thing)
    if isinstance(thing, dict):
        return size + sum(weight(value) for value in thing.values())
    if isinstance(thing, list | tuple | deque | set):
        return size + sum(map(weight, thing))
    slots = getattr(type(thing), "__slots__", ())
    size += sum(weight(getattr(thing, name)) for name in slots if hasattr(thing, name))
    return size + weight(vars(thing)) if hasattr(thing, "__dict__") else size
