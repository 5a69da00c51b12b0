"""Context providers as a plug-in declares them; what they are told is kept by run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from app.adapters.context.python import ContextProvider
from app.ports.context import Turn

TOLD: defaultdict[str, list[tuple[str, list[dict[str, Any]]]]] = defaultdict(list)
"""By run id: the provider, and the responses that it was told of."""


def shelf(turn: Turn) -> Any:
    """Knows two books."""
    turn.context["changed"] = True  # its own copy, which nobody else sees
    return {"books": 2, "for": turn.instruction}


async def silent(turn: Turn) -> None:
    """Has nothing to add."""


def fails(turn: Turn) -> Any:
    """Always fails."""
    raise RuntimeError("a provider of the tests fails")


async def exits(turn: Turn) -> Any:
    """Tries to end the process."""
    raise SystemExit(1)


async def gives_up(turn: Turn) -> Any:
    """Cancels itself."""
    raise asyncio.CancelledError


async def hangs(turn: Turn) -> Any:
    """Never comes back, if it is asked to."""
    if turn.guidance == "hang":
        await asyncio.Event().wait()


def too_much(turn: Turn) -> Any:
    """Gives more than anybody takes."""
    return "x" * 100_000


def no_json(turn: Turn) -> Any:
    """Gives what is no JSON."""
    return {"at": object()}


def half(turn: Turn) -> Any:
    """Gives what cannot be stored as it is."""
    return "a\0b"


def keeps(name: str) -> Any:
    """Notes what it is told."""

    def write_back(turn: Turn, responses: list[dict[str, Any]]) -> None:
        TOLD[str(turn.run_id)].append((name, list(responses)))
        responses.clear()  # its own copy

    return write_back


async def write_back_fails(turn: Turn, responses: list[dict[str, Any]]) -> None:
    """Always fails."""
    raise RuntimeError("a provider of the tests fails")


CONTEXT_PROVIDERS = [
    ContextProvider("shelf", shelf, keeps("shelf")),
    ContextProvider("bad_ears", write_back=write_back_fails),
    ContextProvider("clerk", write_back=keeps("clerk")),
    *(
        ContextProvider(f.__name__, f)
        for f in (silent, fails, exits, gives_up, hangs, too_much, no_json, half)
    ),
]
