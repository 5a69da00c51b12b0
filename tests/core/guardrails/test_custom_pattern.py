"""The caller's own patterns: what they find, how the text may be cut, and which of them are refused."""

from __future__ import annotations

from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.guardrails.base import KEEP, MAX_WEIGHT
from app.core.guardrails.rules.custom_pattern import REACH, STEP, CustomPatternRule
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
        ("SECRET", ["SECRET and ", "SECRET"], [0]),
        ("SECRET", ["é😀" * 3 + "SECRET"], [6]),
        ("SECRET", ["\ud800SECRET."], [1]),
        (r"\bcat\b", ["a cat", "alogue"], []),
        (r"\bcat\b", ["a cat", " sits"], [2]),
        (r"^no", ["no, ", "no" * KEEP, "no no"], [0]),
        (r"(?m)^#", ["a # a\n", "# b # c"], [6]),
        (r"out$", ["out", " of luck, out"], [13]),
        (r"x+", ["ax", "xx", "xb"], [1]),
        (r"\[.+\]", ["say [" + "a" * KEEP, "b" * KEEP, "] now"], [4]),
        (r"(?s)BEGIN.*END", ["BEGIN" + "\n" * 300, "\n" * 300, "END"], [0]),
    ],
)
def test_it_finds_the_first_place_however_the_answer_comes(
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


LIGHT = [
    "abc",
    "a{3}",
    r"\bb+c\b",
    "[ab]é",
    "^ab",
    "c a$",
    "é +é",
    r"(?m)^b",
    r"\Bc",
    r"(?:ab|bc)+\b",
    r"c\z",
]
HEAVY = ["a.{20}b", "[abc ]{20}é", r"\b(?:[abc]{2} ?){4,5}\b", "c(?:[ab] ?){8}$", "(?i)ab[^é]{12}C"]


@given(
    st.text("abc é\n", max_size=KEEP),
    st.lists(st.integers(0, 1_000), max_size=12),
    st.lists(st.sampled_from([*LIGHT, *HEAVY]), min_size=1, max_size=3, unique=True),
)
def test_it_finds_what_a_search_of_the_whole_answer_finds(
    text: str, at: list[int], patterns: list[str]
) -> None:
    expected = [match.start() for match in (re2.search(pattern, text) for pattern in patterns) if match]
    assert places(patterns, cut(text, at)) == sorted(expected)


@given(
    st.integers(0, 3 * KEEP),
    st.integers(0, 30 * KEEP),
    st.lists(st.integers(0, 40 * KEEP), max_size=40),
    st.sampled_from(["b.{50}c", "b[ax]{50}c", r"\bb[a-z]+c\b", "(?i)BA+X+C", "ba{20}x[ax]{29}c"]),
)
def test_a_match_that_is_not_too_long_is_found_wherever_it_lies(
    before: int, after: int, at: list[int], pattern: str
) -> None:
    text = "é " * before + "b" + "a" * 20 + "x" * 30 + "c" + " é" * after
    assert places([pattern], cut(text, at)) == [2 * before]


def test_long_matches_are_found_near_the_end_only() -> None:
    heavy, filling = rule("b.{40}x", r"\[.+\]"), "-" * KEEP
    reach = REACH // heavy.weight
    long = ["[" + filling, *["-"] * 3 * KEEP, "]"]
    far = [*["a"] * (reach // 10 + 1)] * 10
    assert [v.position for v in found(heavy, ["".join(long)])] == [0]
    assert [v.position for v in found(heavy, ["".join(far), *long])] == [len(far)]


@pytest.mark.parametrize("pattern", ["^a", r"\Aa", r"\ba", "(?m)^a"])
def test_where_a_look_begins_is_not_where_the_answer_does(pattern: str) -> None:
    assert not found(rule(pattern), ["x" + "a" * KEEP, *["a"] * 20])
    weighty = rule("xc{95}", pattern)
    assert not found(weighty, ["x" + "a" * REACH, "a"])


def test_the_look_at_the_end_reaches_over_all_that_may_wait() -> None:
    waits = STEP * MAX_WEIGHT + KEEP
    assert waits < REACH // MAX_WEIGHT


def test_each_pattern_is_told_once_and_in_order_of_place() -> None:
    told = found(rule("c", "a", "b", "z"), ["ab" * 30, "c"])
    assert [violation.position for violation in told] == [0, 1, 60]


def test_heavy_patterns_look_less_often_and_still_at_all_of_it() -> None:
    light, heavy = rule("x{3}"), rule("a[ab]{60}c", "x{3}")
    text = "xxx" + "-" * 2 * heavy.step
    looks = [
        list(rule.start().tail(tail)) for rule in (light, heavy) for tail in [next(tails(["xxx", text]))]
    ]
    assert [len(look) for look in looks] == [1, 0]
    assert [v.position for v in found(heavy, list(text))] == [0]


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


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(.*a){12}b", r"(a|b)*a(a|b){9}c"])
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
        ({"patterns": ["b?a", "[ab]{60}c", "[bc]{60}a", "a"]}, ("patterns", 2)),
        ({"patterns": [f"a.{{{MAX_WEIGHT}}}"]}, ("patterns", 0)),
        ({"patterns": [r"\pL{20}"]}, ("patterns", 0)),
        ({"patterns": [r"a\Q(\E"]}, ("patterns", 0)),
        ({"patterns": ["((a{100}){100}){100}"]}, ("patterns", 0)),
        ({"patterns": ["a"], "flags": "i"}, ("flags",)),
        ({"patterns": ["a"], "message": ""}, ("message",)),
    ],
)
def test_bad_options_name_their_place(options: dict[str, Any], loc: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        CustomPatternRule(options)
    assert caught.value.errors()[0]["loc"] == loc
