"""Secrets sealed with AES-256-GCM."""

from __future__ import annotations

import base64
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.sealing import AesGcmVault, BadKey, keys_in
from app.core.errors import CredentialUnreadable, NoSealingKey
from app.core.sealing import Envelope, Place

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
HERE = Place("credentials", UUID(int=1), "secret")
SECRET = "a secret of some length"


@given(st.text())
def test_what_was_sealed_opens_in_its_place(secret: str) -> None:
    vault = AesGcmVault({"old": OLD})
    assert vault.open(HERE, vault.seal(HERE, secret)) == secret


def test_nothing_of_the_secret_shows_and_no_two_are_alike() -> None:
    vault = AesGcmVault({"old": OLD})
    one, other = vault.seal(HERE, SECRET), vault.seal(HERE, SECRET)
    first, second = Envelope.of(one), Envelope.of(other)
    assert first is not None
    assert second is not None
    assert first.nonce != second.nonce
    assert first.ciphertext != second.ciphertext
    assert SECRET.encode() not in first.ciphertext


@pytest.mark.parametrize(
    "there",
    [
        Place("credentials", UUID(int=2), "secret"),
        Place("webhook_endpoints", UUID(int=1), "secret"),
        Place("credentials", UUID(int=1), "other"),
    ],
)
def test_it_opens_in_no_other_place(there: Place) -> None:
    vault = AesGcmVault({"old": OLD})
    with pytest.raises(CredentialUnreadable, match="row was altered"):
        vault.open(there, vault.seal(HERE, SECRET))


@given(st.data())
def test_it_does_not_open_when_a_byte_is_changed(data: st.DataObject) -> None:
    vault = AesGcmVault({"old": OLD})
    envelope = Envelope.of(vault.seal(HERE, SECRET))
    assert envelope is not None
    raw = bytearray(envelope.nonce + envelope.ciphertext)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = Envelope("old", bytes(raw[:12]), bytes(raw[12:])).text()
    with pytest.raises(CredentialUnreadable):
        vault.open(HERE, changed)


def test_the_first_key_seals_and_every_one_opens() -> None:
    before = AesGcmVault({"old": OLD}).seal(HERE, SECRET)
    both = AesGcmVault({"new": NEW, "old": OLD})
    assert both.key_ids == ("new", "old")
    assert both.open(HERE, before) == SECRET
    after = both.seal(HERE, SECRET)
    assert AesGcmVault({"new": NEW}).open(HERE, after) == SECRET
    with pytest.raises(CredentialUnreadable, match="'old'"):
        AesGcmVault({"new": NEW}).open(HERE, before)
    with pytest.raises(CredentialUnreadable, match="another"):
        AesGcmVault({"old": NEW}).open(HERE, before)


def test_without_a_key_nothing_is_sealed() -> None:
    with pytest.raises(NoSealingKey, match="BRANCHLINE_SEALING_KEYS"):
        AesGcmVault({}).seal(HERE, SECRET)


def line(id: str, size: int = 32) -> str:
    return f"{id}:{base64.b64encode(bytes(size)).decode()}"


def test_keys_keep_their_order() -> None:
    assert list(keys_in([line("b"), line("a"), f" {line('2026-11')}\n"])) == ["b", "a", "2026-11"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["hidden-hidden"], "key 1 is not written as id:base64"),
        ([line("a"), line("")], "key 2 is not written"),
        ([line("a b")], "key 1 is not written"),
        ([line("x" * 33)], "key 1 is not written"),
        (["a:hidden!"], "'a' is no base64"),
        ([line("a", 16)], "'a' has 16 bytes"),
        (["a:"], "'a' has 0 bytes"),
        ([line("a"), line("a")], "two keys have the id 'a'"),
    ],
)
def test_bad_keys_are_refused_without_telling_them(lines: list[str], words: str) -> None:
    with pytest.raises(BadKey, match=words) as caught:
        keys_in(lines)
    assert "hidden" not in str(caught.value)
