"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], within_s: float = 30.0, what: str = "") -> None:
    """Return once `condition()` is true; fail after a bound that only a broken program reaches."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"still not so after {within_s} s: {what or condition}")
        time.sleep(0.01)
