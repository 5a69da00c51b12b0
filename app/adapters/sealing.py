"""`ports.sealing.Vault` with AES-256-GCM, and the operator's keys as they are written down."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from app.core.errors import CredentialUnreadable, NoSealingKey
from app.core.sealing import KEY_BYTES, KEY_ID, NONCE_BYTES, Envelope, Place

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class BadKey(ValueError):
    """A key is not written as it has to be; the words hold nothing of it."""


def keys_in(lines: Iterable[str]) -> dict[str, bytes]:
    """Keys by their ids, in order, from lines `id:base64`. Raises BadKey."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        id, colon, text = line.strip().partition(":")
        if not colon or not re.fullmatch(KEY_ID, id):
            raise BadKey(f"key {number} is not written as id:base64, with an id that matches {KEY_ID}")
        try:
            key = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise BadKey(f"key {id!r} is no base64") from None
        if len(key) != KEY_BYTES:
            raise BadKey(f"key {id!r} has {len(key)} bytes, and has to have {KEY_BYTES}")
        if id in found:
            raise BadKey(f"two keys have the id {id!r}")
        found[id] = key
    return found


class AesGcmVault:
    """See the port. The library is loaded when the first secret is sealed or opened."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """`keys` by their ids; the first one seals."""
        self._keys = dict(keys)
        self._first = next(iter(self._keys), None)

    @property
    def key_ids(self) -> Sequence[str]:
        """See the port."""
        return tuple(self._keys)

    def seal(self, place: Place, secret: str) -> str:
        """See the port."""
        if self._first is None:
            raise NoSealingKey(
                "This server has no key to seal secrets with: the operator sets BRANCHLINE_SEALING_KEYS. "
                "Secrets can be named by a variable of the server instead."
            )
        nonce = os.urandom(NONCE_BYTES)
        cipher = _cipher(self._keys[self._first])
        sealed = cipher.encrypt(nonce, secret.encode(), place.bound_to(self._first))
        return Envelope(self._first, nonce, sealed).text()

    def open(self, place: Place, stored: str) -> str:
        """See the port."""
        envelope = Envelope.of(stored)
        if envelope is None:
            raise CredentialUnreadable("A stored secret is not in a form that this version can open.")
        key = self._keys.get(envelope.key_id)
        if key is None:
            raise CredentialUnreadable(
                f"A stored secret is sealed under the key {envelope.key_id!r}, which is not among the "
                "operator's BRANCHLINE_SEALING_KEYS; add it there, or set the secret anew."
            )
        from cryptography.exceptions import InvalidTag

        bound = place.bound_to(envelope.key_id)
        try:
            return _cipher(key).decrypt(envelope.nonce, envelope.ciphertext, bound).decode()
        except InvalidTag:
            raise CredentialUnreadable(
                f"A stored secret does not open: the key {envelope.key_id!r} is another than it was sealed "
                "under, or the row was altered; set the secret anew."
            ) from None


@lru_cache(maxsize=64)
def _cipher(key: bytes) -> AESGCM:
    # Loaded here: a service that stores no secret does without it.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
