"""How a tool is called over HTTP: its address, its headers, its limits, and when it is called once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.lifecycle.delays import Strategy, backoff_ms
from app.core.signing import Signing

CONNECT_MS: Final = 2_000
FIRST_BYTE_MS: Final = 10_000
TOTAL_MS: Final = 30_000
MOST_MS: Final = 600_000
"""Longest that any limit may be."""
TRIES: Final = 3
MOST_TRIES: Final = 5
PAUSE_MS: Final = 200
MOST_PAUSE_MS: Final = 5_000
"""First pause between tries, about, and the longest that nobody asked for."""

OURS: Final = frozenset(
    {
        *("host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive"),
        *("te", "trailer", "upgrade", "expect", "accept-encoding", "content-encoding", "idempotency-key"),
        *("proxy-authorization", "proxy-connection"),
        *("webhook-id", "webhook-timestamp", "webhook-signature"),
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
    """The whole call, with all its tries and the pauses between them."""
    tries: int = TRIES
    """How often it is sent at most; see `pause_ms`."""
    signing: Signing | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> HttpSettings:
        """What `settings` made."""
        limits = settings["timeout_ms"]
        return cls(
            settings["url"],
            settings["headers"],
            limits["connect"],
            limits["first_byte"],
            limits["total"],
            settings.get("tries", TRIES),
            None if (signing := settings.get("signing")) is None else Signing.model_validate(signing),
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
            "tries": self.tries,
            "signing": None if self.signing is None else self.signing.model_dump(exclude_none=True),
        }


@dataclass(frozen=True, slots=True)
class Miss:
    """What is known of a try that failed, so far as it decides about the next one."""

    sent: bool
    """Whether anything of the request may have reached the tool."""
    passing: bool
    """Whether the same may work later."""
    retry_after_ms: int = 0
    """The pause that the tool asks for."""


def pause_ms(
    miss: Miss, tries: int, http: HttpSettings, *, idempotent: bool, draw: Callable[[], float]
) -> float | None:
    """How long to wait after the `tries`-th try (from 1) before the next; None when it was the last.

    A request that may have reached the tool is sent again only if the tool is declared idempotent: whether
    it took effect is not known. What was never sent may always be sent. `draw` gives a number from 0 to 1.
    """
    if not miss.passing or tries >= http.tries or (miss.sent and not idempotent):
        return None
    grown_ms = backoff_ms(
        Strategy.FIXED_JITTER,
        retries=tries - 1,
        base_ms=PAUSE_MS,
        cap_ms=MOST_PAUSE_MS,
        last_ms=0,
        draw=draw,
    )
    return max(grown_ms, miss.retry_after_ms)


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
