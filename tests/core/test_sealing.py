"""The form in which secrets are stored, and keys as they are written down."""

from __future__ import annotations

import base64
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.sealing import MARK, NONCE_BYTES, TAG_BYTES, Envelope, Place, is_sealed, stored_under

KEY_IDS = st.from_regex(r"\A[A-Za-z0-9_-]{1,32}\Z")
NONCE, LEAST = bytes(NONCE_BYTES), bytes(TAG_BYTES)


@given(KEY_IDS, st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES), st.binary(min_size=TAG_BYTES))
def test_an_envelope_comes_back_from_its_text(key_id: str, nonce: bytes, ciphertext: bytes) -> None:
    envelope = Envelope(key_id, nonce, ciphertext)
    text = envelope.text()
    assert Envelope.of(text) == envelope
    assert is_sealed(text)
    assert text.startswith(stored_under(key_id))


@given(st.text())
def test_any_other_text_is_none(text: str) -> None:
    assert Envelope.of(text) is None
    assert Envelope.of(MARK + text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_c2VjcmV0",
        f"{MARK}2:k:{base64.urlsafe_b64encode(bytes(40)).decode()}",
        f"{MARK}1::{base64.urlsafe_b64encode(bytes(40)).decode()}",
        f"{MARK}1:k:{base64.urlsafe_b64encode(bytes(NONCE_BYTES + TAG_BYTES - 1)).decode().rstrip('=')}",
        Envelope("k", NONCE, LEAST).text() + "\n",
        Envelope("k", NONCE, LEAST).text() + "=",
    ],
)
def test_what_is_cut_or_of_another_version_is_none(text: str) -> None:
    assert Envelope.of(text) is None


PLACE = Place("models", UUID(int=1), "secret")


@pytest.mark.parametrize(
    "other",
    [
        Place("tools", UUID(int=1), "secret"),
        Place("models", UUID(int=2), "secret"),
        Place("models", UUID(int=1), "headers/X"),
    ],
)
def test_every_part_of_a_place_counts(other: Place) -> None:
    assert other.bound_to("k") != PLACE.bound_to("k")
    assert PLACE.bound_to("l") != PLACE.bound_to("k")
