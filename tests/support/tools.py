"""Tools for tests, each ending in its own way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

from app.adapters.tools.python import Tool

TEXT: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

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


def flaky(key: str, failures: int) -> int:
    """Fail so often for a key, and then tell how often that was."""
    CALLS.append(key)
    tries = CALLS.count(key)
    if tries <= failures:
        raise ConnectionError(f"try {tries}")
    return tries


async def slow_at_first(key: str) -> str:
    """Never end at the first call for a key."""
    CALLS.append(key)
    if CALLS.count(key) == 1:
        await asyncio.Event().wait()
    return "in time"


def _louder(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"text": arguments["text"].upper()}


async def _endless(arguments: dict[str, Any]) -> dict[str, Any]:
    await asyncio.Event().wait()
    return arguments


TOOLS = [
    *(add, nothing, refuse, note, later, forever, echo, flaky),
    Tool("steady", flaky, idempotent=True),
    Tool("slow_at_first", slow_at_first, idempotent=True),
    Tool("shout", lambda text: CALLS.append(text), parameters=TEXT, preprocessor=_louder),
    Tool("unready", lambda text: CALLS.append(text), parameters=TEXT, preprocessor=_endless),
]
