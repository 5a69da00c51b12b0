"""How a tool is called over HTTP: its address, its headers, its limits of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

CONNECT_MS: Final = 2_000
FIRST_BYTE_MS: Final = 10_000
TOTAL_MS: Final = 30_000
MOST_MS: Final = 600_000
"""Longest that any limit may be."""

OURS: Final = frozenset(
    {
        *("host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive"),
        *("te", "trailer", "upgrade", "expect", "accept-encoding", "content-encoding", "idempotency-key"),
        *("proxy-authorization", "proxy-connection"),
    }
)
"""Headers, in lower case, that say how the request is sent and read, and so are no tool's to choose."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The `http` of a tool."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By name; a value may be a secret, or `env:NAME`, or `credential:NAME`."""
    connect_ms: int = CONNECT_MS
    """Until the connection is made."""
    first_byte_ms: int = FIRST_BYTE_MS
    """From the request to the first byte of the answer."""
    total_ms: int = TOTAL_MS
    """The whole call."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> HttpSettings:
        """What `settings` made."""
        limits = settings["timeout_ms"]
        return cls(
            settings["url"], settings["headers"], limits["connect"], limits["first_byte"], limits["total"]
        )

    def settings(self) -> dict[str, Any]:
        """As JSON, every limit said."""
        return {
            "url": self.url,
            "headers": dict(self.headers),
            "timeout_ms": {
                "connect": self.connect_ms,
                "first_byte": self.first_byte_ms,
                "total": self.total_ms,
            },
        }


def header_faults(names: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the names of headers, by name."""
    faults: dict[str, str] = {}
    seen: set[str] = set()
    for name in names:
        lower = name.lower()
        if lower in OURS:
            faults[name] = "this header is set by the service"
        elif lower in seen:
            faults[name] = "this header stands here twice"
        seen.add(lower)
    return faults
