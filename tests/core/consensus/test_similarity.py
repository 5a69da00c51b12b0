"""How alike two answers are taken to be, and what comparing them may cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.consensus.similarity import MAX_COMPARED, Sketch, similarity

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def between(one: Any, other: Any) -> float:
    return similarity(Sketch(one), Sketch(other))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("yes", "Yes.", 1.0),
        ("a  b\n", "A b", 1.0),
        ("e\N{COMBINING ACUTE ACCENT}", "\N{LATIN SMALL LETTER E WITH ACUTE}", 1.0),
        ("10²", "102", 0.0),
        ("yes", "no", 0.0),
        ("42", "41", 0.0),
        ("5", "-5", 0.4),
        ("", "", 1.0),
        ("", "a", 0.0),
        ("the sea is salty", "the sea is deep", 0.6),
        ("東京です", "京都です", 0.4),
        (1, 1.0, 1.0),
        (1, True, 0.0),
        (0, None, 0.0),
        ("1", 1, 0.0),
        ([], {}, 0.0),
        (10**400, 1.5, 0.0),
        ([1, 2, 3], [1, 2, 4], 2 / 3),
        ([1, 2], [1, 2, 3], 2 / 3),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, 1.0),
        ({"a": 1, "b": "x"}, {"a": 1, "c": "x"}, 1 / 3),
        ({"a": {"b": []}}, {"a": {"b": {}}}, 0.0),
        ({"0": 1}, [1], 0.0),
    ],
)
def test_likeness(one: Any, other: Any, expected: float) -> None:
    assert between(one, other) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The capital of France is Paris.", "The capital of France is Lyon."),
        ("The drug is safe.", "The drug is not safe."),
    ],
)
def test_a_word_that_matters_in_a_short_sentence_tells_two_answers_apart(one: str, other: str) -> None:
    assert between(one, other) < 0.8


@given(values, values)
def test_it_is_the_same_both_ways_round_and_within_bounds(one: Any, other: Any) -> None:
    assert 0.0 <= between(one, other) <= 1.0
    assert between(one, other) == between(other, one)
    assert between(one, one) == 1.0


def test_of_long_texts_both_ends_and_the_length_count() -> None:
    middle = "word " * MAX_COMPARED
    assert between(f"begin {middle} end", f"begin {middle} ends") > 0.99
    assert between(f"begin {middle} end", f"begin {middle}{middle} end") == pytest.approx(0.5, abs=0.01)
    assert between(f"begin {middle} end", "begin end") < 0.01


def test_what_is_looked_at_of_a_long_text_is_bounded() -> None:
    words = " ".join(str(number) for number in range(100_000))
    assert Sketch(words).as_text.pairs.total() <= MAX_COMPARED


def test_a_large_value_is_compared_as_a_text() -> None:
    large = {str(number): number for number in range(MAX_COMPARED)}
    changed = {**large, "0": -1}
    assert 0.99 < between(large, changed) < 1.0
    assert between(large, {"0": 0}) < 0.01


def test_two_documents_of_the_same_words_in_another_order_are_not_equal() -> None:
    assert between("first this and then that", "first that and then this") < 0.6
