"""Secrets in what others say are hidden, however they are written there."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.masking import MASK, PIECE, Mask

SECRET = 'sk-4f"a/9+1b~7c2 e8d?6='
SECRETS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=PIECE, max_size=80)

FORMS: list[Callable[[str], str]] = [
    str,
    lambda secret: json.dumps(secret)[1:-1],
    lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    lambda secret: quote(secret, safe=""),
    lambda secret: base64.b64encode(secret.encode()).decode(),
    lambda secret: base64.urlsafe_b64encode(f"user:{secret}".encode()).decode(),
    lambda secret: base64.b64encode(f"u:{secret}:more".encode()).decode(),
]


def pieces(text: str) -> set[str]:
    return {text[at : at + PIECE] for at in range(len(text) - PIECE + 1)}


@given(SECRETS, st.sampled_from(FORMS), st.text(), st.text())
def test_no_form_of_a_secret_is_left(
    secret: str, form: Callable[[str], str], before: str, after: str
) -> None:
    said = Mask([secret]).all(before + form(secret) + after)
    assert secret not in said
    assert not pieces(secret) & pieces(said.replace(MASK, "\0"))
    assert MASK in said or len(form(secret)) < PIECE


@given(SECRETS, st.data())
def test_a_piece_that_a_cut_left_is_hidden_too(secret: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(secret) - PIECE))
    end = data.draw(st.integers(begin + PIECE, len(secret)))
    said = Mask([secret]).all(f"wrong key {secret[begin:end]}")
    assert not pieces(secret[begin:end]) & pieces(said.replace(MASK, "\0"))


def test_values_are_walked_and_the_rest_stays() -> None:
    value = {"a": [f"key {SECRET}!", 5, None], SECRET: {"b": "no secret at all"}}
    assert Mask([SECRET]).all(value) == {"a": [f"key {MASK}!", 5, None], MASK: {"b": "no secret at all"}}
    assert Mask([SECRET]).whole(value) == Mask([SECRET]).all(value)
    assert Mask([]).all(value) == value
    assert Mask([""]).all("anything") == "anything"


def test_only_what_is_there_as_a_whole_counts_for_outputs() -> None:
    mask = Mask([SECRET])
    assert mask.whole([f"x{SECRET}x", {"a": SECRET}]) == [f"x{MASK}x", {"a": MASK}]
    assert mask.whole({SECRET[:-1]: 1.5}) == {SECRET[:-1]: 1.5}


def test_half_a_surrogate_hides_no_secret_from_it() -> None:
    assert Mask([SECRET]).whole(["\ud800", SECRET]) == ["\ud800", MASK]


@pytest.mark.parametrize("short", ["abcde", "secret"])
def test_a_short_secret_is_hidden_as_a_whole(short: str) -> None:
    assert Mask([short]).all(f"({short}) {short[:-1]}") == f"({MASK}) {short[:-1]}"


def test_plus_signs_for_blanks_leave_no_long_piece() -> None:
    said = Mask([SECRET]).all(quote_plus(SECRET))
    assert not pieces(quote_plus(SECRET)) & pieces(said.replace(MASK, "\0"))
