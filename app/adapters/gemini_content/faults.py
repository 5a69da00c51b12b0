"""Read what Google's errors say beyond the common: a status in words, and how long to wait."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from app.core.faults import Fault

_DURATION: Final = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?s")


def in_full(fault: Fault) -> Fault:
    """`fault`, made of an error object, with the type and the waiting time that stand in its detail."""
    word, asked = fault.detail.get("status"), _asked_to_wait_ms(fault.detail.get("details"))
    return replace(
        fault,
        type=word if isinstance(word, str) and word else fault.type,
        retry_after_ms=asked if fault.retry_after_ms is None else fault.retry_after_ms,
    )


def _asked_to_wait_ms(details: Any) -> int | None:
    """The `retryDelay` of a RetryInfo among the details: seconds, as text that ends with an s."""
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (found := _DURATION.fullmatch(delay)):
            seconds, part = found.groups()
            return int(seconds) * 1000 + int((part or "").ljust(3, "0")[:3])
    return None
