"""The form in which a secret is stored: sealed under a key, and for one place only."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

MARK: Final = "sealed:"
"""What every sealed text begins with, and no secret may."""
VERSION: Final = "1"
"""AES-256-GCM, with the nonce before the ciphertext and the tag behind it."""

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16

KEY_ID: Final = r"[A-Za-z0-9_-]{1,32}"
_FORM: Final = re.compile(rf"{MARK}{VERSION}:({KEY_ID}):([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sealed text is stored; it opens nowhere else."""

    table: str
    row_id: UUID
    column: str
    """The column, or what stands for it: a path into JSON, or one name for columns that hand texts on."""

    def bound_to(self, key_id: str) -> bytes:
        """The associated data: none of the parts can hold the byte that stands between them."""
        return "\0".join((MARK, VERSION, key_id, self.table, str(self.row_id), self.column)).encode()


@dataclass(frozen=True, slots=True)
class Envelope:
    """A sealed text, taken apart."""

    key_id: str
    nonce: bytes
    ciphertext: bytes
    """With its tag."""

    def text(self) -> str:
        """What is stored."""
        body = base64.urlsafe_b64encode(self.nonce + self.ciphertext).rstrip(b"=").decode()
        return f"{stored_under(self.key_id)}{body}"

    @classmethod
    def of(cls, text: str) -> Envelope | None:
        """What `text` made; None for what is no such text."""
        found = _FORM.fullmatch(text)
        if found is None:
            return None
        key_id, body = found.groups()
        try:
            raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        except binascii.Error:
            return None
        if len(raw) < NONCE_BYTES + TAG_BYTES:
            return None
        return cls(key_id, raw[:NONCE_BYTES], raw[NONCE_BYTES:])


def stored_under(key_id: str) -> str:
    """What everything begins with that is sealed under a key."""
    return f"{MARK}{VERSION}:{key_id}:"


def is_sealed(text: str) -> bool:
    """Whether a stored text is a sealed one."""
    return text.startswith(MARK)
