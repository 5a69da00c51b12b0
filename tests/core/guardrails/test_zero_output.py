"""The rule zero_output: which answers say nothing, and that it says which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.guardrails.rules.zero_output import REPEATED, RULE
from tests.core.guardrails.cuts import findings


@pytest.mark.parametrize(
    "text",
    ["a", "0", "No.", "{}x", "値", "é", "👍", "∞", "aaaaaaaaa", "a" * 20 + "b", "ab" * 10, "- a", "_x_", "½"],
)
def test_whatever_says_something_passes(text: str) -> None:
    assert findings(RULE(), [text]) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("   ", "blank"),
        (" \n\t\u00a0\u200b\ufeff", "blank"),
        ("\0\0", "blank"),
        ("...", "punctuation"),
        ("{}", "punctuation"),
        ("— … ¿?", "punctuation"),
        ("。、", "punctuation"),
        ("_ _", "punctuation"),
        ("\u200b!\u200b", "punctuation"),
        ("a" * 10, "one character, 'a', 10 times"),
        (" " + "値" * 12 + "\n", "one character, '値', 12 times"),
        ("-" * 30, "one character, '-', 30 times"),
        ("👍" * 10, "one character, '👍', 10 times"),
    ],
)
def test_what_says_nothing_is_one_error(text: str, message: str) -> None:
    [found] = findings(RULE(), [text])
    assert message in found.message
    assert (found.rule, found.severity, found.position) == ("zero_output", "error", None)


@given(st.characters(categories=["L", "N"]), st.integers(1, 30))
def test_a_letter_says_something_unless_it_is_repeated(letter: str, times: int) -> None:
    assert (findings(RULE(), [letter * times]) == []) == (times < REPEATED)
