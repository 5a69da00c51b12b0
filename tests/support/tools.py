"""Tools for tests, each ending in its own way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

RELEASE = threading.Event()
"""Lets `stuck` go; set at the end of a test that used it."""

CALLS: list[str] = []
"""What `note` was told, in order."""


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def nothing() -> None:
    """Give no result, successfully."""


def refuse(why: str = "no") -> None:
    """Fail."""
    raise ValueError(why)


def note(text: str) -> str:
    """Remember a text."""
    CALLS.append(text)
    return text


async def later(seconds: float, value: str) -> str:
    """Give the value after a while."""
    await asyncio.sleep(seconds)
    return value


async def forever() -> None:
    """Never end by itself."""
    await asyncio.Event().wait()


def echo(value: Any) -> Any:
    """Give back any JSON value."""
    return value


TOOLS = [add, nothing, refuse, note, later, forever, echo]
