"""Networks for tests, and a signer with nothing to sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.adapters.ambient import SystemClock, Uuid7Ids
from app.adapters.checked_network import CheckedNetwork
from app.adapters.signing import Signer
from app.ports.credentials import Credentials

ANYWHERE: Final = CheckedNetwork(lambda host, address: True)
"""No address is refused."""


def signing(exposed: Mapping[str, str | None], credentials: Credentials | None = None) -> Signer:
    """A signer by the system's clock."""
    return Signer(SystemClock(), Uuid7Ids(), exposed, credentials)


def unsigned() -> Signer:
    """One without any secret."""
    return signing({})
