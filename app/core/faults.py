"""How an attempt at a model stream can fail, as the adapters report it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    """Where the fault came from; `core/lifecycle/faults.py` decides what follows from it."""

    NETWORK = "network"
    """Refused, reset, DNS, broken pipe: the connection, not the answer."""
    TLS = "tls"
    """Certificate or handshake: trying again would not help."""
    STATUS = "status"
    """The server answered with an HTTP error status."""
    IN_STREAM = "in_stream"
    """An error object inside an answer that began well; `status` is set when the object names one."""
    MALFORMED = "malformed"
    """The answer is not what the wire format promises, or breaks a limit of ours."""
    HELD = "held"
    """Nothing was asked: the model's limits, which are ours, did not allow it."""
    INTERNAL = "internal"
    """Nothing was asked: no such adapter, a request that this provider cannot take."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One failed attempt, before anything is decided about it."""

    kind: FaultKind
    message: str
    """For people; holds no credential."""
    type: str = ""
    """Short machine word, such as `connection_reset`, or the provider's own error type."""
    status: int | None = None
    """HTTP status, of the answer or named inside it."""
    provider_code: str | int | None = None
    """The provider's own error code."""
    retry_after_ms: int | None = None
    """How long the server asked us to wait."""
    detail: dict[str, Any] = field(default_factory=dict)
    """What else helps a diagnosis, for example a failed generation."""


class ProviderError(Exception):
    """Raised by a provider in place of an answer, or in the middle of one."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault
