"""What a client's pattern weighs, and what is no pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.guardrails.client_patterns import BadPattern, ClientPattern

LIGHTEST = 1


@pytest.mark.parametrize(
    ("source", "weight"),
    [
        ("secret", LIGHTEST),
        (r"(?i)\bpassword\s*[:=]", LIGHTEST),
        ("TODO|FIXME", LIGHTEST),
        (r"\{\{.*?\}\}", LIGHTEST),
        ("x{2,}y", LIGHTEST),
        ("a[ab]{40}c", 40),
        ("a[^c]{40}c", 80),
        ("a.{40}c", 80),
        ("(?i)a[b-d]{40}e", 80),
        ("[ab]{40}c", 40),
        ("a(?:[ab]?){20}c", 40),
        ("a(?:bc|cb|[bc]){10}d", 70),
        ("a(?:b{3}){10}c", 30),
        ("a(?:b{2,4}){10}c", 60),
        ("a[]a]{20}[[:alpha:]b]{20}c", 40),
        ("x{,20}[ab]{20}{", 20),
        (r"a\x{e9}{20}c", 20),
        (r"a\.{20}\]{20}c", 40),
        (r"AKI_[0-9A-Z]{36}\b", 10),
        (r"AAAA[0-9A-Z]{36}\b", 36),
        (r"ABAB[0-9A-Z]{36}\b", 20),
        (r"AKI_[0-9A-Z]{36,}", 37),
        (r"AKI_[0-9A-Z]{36}|b", 37),
        (r"AKI_?[0-9A-Z]{36}", 29),
    ],
)
def test_a_pattern_weighs_as_many_matches_as_may_be_open_at_once(source: str, weight: int) -> None:
    assert ClientPattern(source).weight == weight


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("(", "missing"),
        (r"(a)\1", "invalid escape"),
        ("(?=a)", "invalid perl operator"),
        ("a*", "the empty text"),
        ("", "the empty text"),
        ("a|(?:b|)", "the empty text"),
        (r"\Qa.\E", "escape single characters"),
        ("\ud800", "Unicode"),
        (r"\pL{4}", "large"),
        ("((a{99}){99}){99}", "repetition size"),
    ],
)
def test_what_cannot_be_taken_says_why(source: str, words: str) -> None:
    with pytest.raises(BadPattern, match=words):
        ClientPattern(source)


@given(st.text(alphabet="ab(|)*+?[]^$\\.{}1,é:-pLQ", max_size=20), st.binary(max_size=40))
def test_no_pattern_and_no_text_raises_anything_else(source: str, raw: bytes) -> None:
    try:
        pattern = ClientPattern(source)
    except BadPattern:
        return
    assert pattern.weight >= LIGHTEST
    pattern.search(raw)
