"""The caller's own patterns: what they find, how the text may be cut, and which of them are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.guardrails.base import KEEP
from app.core.guardrails.rules.custom_pattern import MAX_FINDINGS, CustomPatternRule
from tests.core.guardrails.texts import cut, found, tails


def rule(*patterns: str, **more: Any) -> CustomPatternRule:
    """The rule for some patterns."""
    return CustomPatternRule({"patterns": list(patterns), **more})


def places(patterns: list[str], parts: list[str]) -> list[int]:
    """Where a fresh check finds something, in order of place."""
    return sorted(violation.position or 0 for violation in found(rule(*patterns), parts))


@pytest.mark.parametrize(
    ("pattern", "parts", "positions"),
    [
        ("SECRET", ["the SECRET is out"], [4]),
        ("SECRET", ["the secret is out"], []),
        ("SECRET", ["the SEC", "RET is out"], [4]),
        ("SECRET", ["SECRET and ", "SECRET"], [0, 11]),
        ("SECRET", ["é😀" * 3 + "SECRET"], [6]),
        ("SECRET", ["\ud800SECRET."], [1]),
        (r"\bcat\b", ["a cat", "alogue"], []),
        (r"\bcat\b", ["a cat", " sits"], [2]),
        (r"^no", ["no, ", "no" * KEEP, "no no"], [0]),
        (r"(?m)^#", ["# a\n", "# b # c"], [0, 4]),
        (r"out$", ["out", " of luck, out"], [13]),
        (r"x+", ["ax", "xx", "xb"], [1]),
        (r"\[.+\]", ["say [" + "a" * KEEP, "b" * KEEP, "] now"], [4]),
        (r"(?s)BEGIN.*END", ["BEGIN" + "\n" * 300, "\n" * 300, "END"], [0]),
    ],
)
def test_it_finds_each_place_once_however_the_answer_comes(
    pattern: str, parts: list[str], positions: list[int]
) -> None:
    assert places([pattern], parts) == positions


def test_a_match_is_told_while_the_answer_still_goes_on() -> None:
    check = rule("SECRET").start()
    told = [len(check.tail(tail)) for tail in tails(["the SEC", "RET is", " out", "."])]
    assert told == [0, 1, 0, 0]


def test_a_match_at_the_very_end_waits_for_what_follows() -> None:
    check = rule(r"\bfoo\b").start()
    assert [len(check.tail(tail)) for tail in tails(["a foo", " b"])] == [0, 1]


@given(
    st.text("abc é", max_size=500),
    st.lists(st.integers(0, 1_000), max_size=12),
    st.lists(
        st.sampled_from(["abc", "a{3}", r"\bb+c\b", "[ab]é", "^ab", "c a$", "é +é"]), min_size=1, max_size=3
    ),
)
def test_findings_do_not_depend_on_the_cuts(text: str, at: list[int], patterns: list[str]) -> None:
    text = text[:120]
    assert places(patterns, cut(text, at)) == places(patterns, [text])


@given(st.text("abc ", max_size=80), st.sampled_from(["abc", "a{3}", r"\bb+c\b", "(a|b)c", "^ab", "[^b]c$"]))
def test_it_finds_what_the_plain_expression_finds(text: str, pattern: str) -> None:
    expected = [match.start() for match in re.finditer(pattern, text)]
    assert places([pattern], [text]) == expected[:MAX_FINDINGS]


def test_only_so_many_findings_are_told() -> None:
    assert len(found(rule("a", "b"), ["ab" * 30, "ab" * 30])) == MAX_FINDINGS


def test_checks_of_one_rule_know_nothing_of_each_other() -> None:
    shared = rule("SECRET")
    first, second = shared.start(), shared.start()
    (head, *_), (other,) = tails(["a SECRET b", " c"]), tails(["x SECRET y"])
    assert [v.position for v in first.tail(head)] == [2]
    assert [v.position for v in second.tail(other)] == [2]
    assert not first.end("a SECRET b c")


def test_the_message_is_the_callers_or_names_the_pattern() -> None:
    (own,) = found(rule("SECRET", message="no secrets"), "a SECRET.")
    (plain,) = found(rule("SECRET"), "a SECRET.")
    assert own.message == "no secrets"
    assert "SECRET" in plain.message
    assert (plain.rule, plain.severity) == ("custom_pattern", "error")


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(.*a){12}b", r"(a|b)*a(a|b){15}c"])
def test_patterns_that_explode_elsewhere_end_here(pattern: str) -> None:
    assert not found(rule(pattern), ["a" * 20_000, "!"])


@pytest.mark.parametrize(
    ("options", "loc"),
    [
        ({}, ("patterns",)),
        ({"patterns": []}, ("patterns",)),
        ({"patterns": ["a"] * 33}, ("patterns",)),
        ({"patterns": ["a", ""]}, ("patterns", 1)),
        ({"patterns": ["a" * 501]}, ("patterns", 0)),
        ({"patterns": ["a", "b", "(c"]}, ("patterns", 2)),
        ({"patterns": ["a", "(?=b)"]}, ("patterns", 1)),
        ({"patterns": ["a", r"(b)\1"]}, ("patterns", 1)),
        ({"patterns": ["a*"]}, ("patterns", 0)),
        ({"patterns": ["\ud800"]}, ("patterns", 0)),
        ({"patterns": ["a{900}", "b{900}", "c{900}"]}, ("patterns", 2)),
        ({"patterns": ["((a{100}){100}){100}"]}, ("patterns", 0)),
        ({"patterns": ["a"], "flags": "i"}, ("flags",)),
        ({"patterns": ["a"], "message": ""}, ("message",)),
    ],
)
def test_bad_options_name_their_place(options: dict[str, Any], loc: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        CustomPatternRule(options)
    assert caught.value.errors()[0]["loc"] == loc
