"""How a tool is called that a client carries out: how long it may take, and for how long a worker has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

CLIENT: Final = "client"
"""The kind of such tools."""

LEASE_S: Final = 60
"""For how long a worker has a call to itself, unless it says otherwise."""
MOST_LEASE_S: Final = 86_400
MOST_S: Final = 2_592_000
"""Longest that a call may wait for its result."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The `client` of a tool."""

    expires_s: float | None = None
    """Seconds within which the result has to be there; None means what the service's settings say."""
    lease_s: float = LEASE_S

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ClientSettings:
        """What `settings` made."""
        return cls(settings["expires_s"], settings["lease_s"])

    def settings(self) -> dict[str, Any]:
        """As JSON."""
        return {"expires_s": self.expires_s, "lease_s": self.lease_s}
