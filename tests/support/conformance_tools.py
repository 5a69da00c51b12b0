"""Tools whose ends, waits and processors are their point."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any, Final

from app.adapters.tools.python import Tool
from tests.support.tools import TEXT

OPENED: Final = threading.Event()
"""Lets `block` go; set by `unblock`."""
SAID: Final[list[str]] = []
"""The texts that `say` and its kin came to, in order."""


class Crowd:
    """Counts the calls of `crowd` that are on their way together."""

    def __init__(self) -> None:
        self.now = self.most = self.begun = 0
        self.door = asyncio.Event()
        """Lets all of them end."""


CROWDS: Final[dict[str, Crowd]] = {}
"""By the name that the calls give."""


async def crowd(name: str) -> None:
    """Wait for the door to open, and be counted until then."""
    counted = CROWDS[name]
    counted.now += 1
    counted.begun += 1
    counted.most = max(counted.most, counted.now)
    try:
        await counted.door.wait()
    finally:
        counted.now -= 1


def block() -> str:
    """Hold a thread up until `unblock` is called."""
    assert OPENED.wait(20)
    return "let go"


def unblock() -> str:
    """Let `block` go."""
    OPENED.set()
    return "opened"


def promise() -> Awaitable[str]:
    """Give what has to be awaited."""

    async def kept() -> str:
        return "kept"

    return kept()


def odd() -> Any:
    """Give what has no JSON form in part."""
    return {"good": 1, "odd": object(), "error": ValueError("inner")}


def say(text: str) -> str:
    """Say a text."""
    SAID.append(text)
    return text


def _fails(_: Any) -> Any:
    raise LookupError("a processor fails")


async def _hangs(_: Any) -> Any:
    await asyncio.Event().wait()


def _turned(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"text": arguments["text"][::-1]}


def _unlike(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"text": 7}


TOOLS = [
    *(crowd, block, unblock, promise, odd, say),
    Tool("measured", say, postprocessor=len),
    Tool("turned", say, parameters=TEXT, preprocessor=_turned),
    Tool("turned_wrong", say, parameters=TEXT, preprocessor=_unlike),
    Tool("breaks_before", say, parameters=TEXT, preprocessor=_fails),
    Tool("breaks_after", say, parameters=TEXT, postprocessor=_fails),
    Tool("hangs_before", say, parameters=TEXT, preprocessor=_hangs),
    Tool("exact", lambda text="": say(text), parameters=TEXT, strict=True),
]
