"""Steps and options that many tests of the stream machine share."""

from __future__ import annotations

from typing import Any

from app.core.lifecycle.options import NO_TIMEOUTS, LifecycleOptions, RetryOptions
from tests.support.stream_driver import Step

Steps = list[Step]
"""One attempt."""

QUICK = LifecycleOptions(timeout=NO_TIMEOUTS, retry=RetryOptions(base_delay_ms=0))
"""No time limits, and retries without a pause."""

RESET: dict[str, Any] = {"error": {"kind": "network", "type": "connection_reset"}}
DENIED: dict[str, Any] = {"error": {"kind": "status", "status": 401}}
END: dict[str, Any] = {"end": "stop"}
