"""Seal what is secret before it is stored, and open it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.core.sealing import Place


class Vault(Protocol):
    """Holds the keys of the operator."""

    @property
    def key_ids(self) -> Sequence[str]:
        """The keys that open; the first one seals. Empty where the operator has set none."""

    def seal(self, place: Place, secret: str) -> str:
        """The secret as it is to be stored at a place. Raises NoSealingKey."""

    def open(self, place: Place, stored: str) -> str:
        """The secret that is stored at a place. Raises CredentialUnreadable."""
