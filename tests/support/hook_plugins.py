"""Hooks as a plug-in declares them, and the tools that they are for; what they were told is kept by run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from app.adapters.hooks.python import Hook, StopHook
from app.adapters.tools.python import Tool
from app.ports.hooks import HookBlocked, ToolHookEvent

TOLD: Final[defaultdict[str, list[tuple[str, ToolHookEvent]]]] = defaultdict(list)
"""By run id: the hook's name and what it was told, in order."""
LEFT: Final[list[str]] = []
"""The runs whose hook was cancelled while it waited."""
RAN: Final[list[str]] = []
"""The values that `passed_on` was called with, in order."""

LONG: Final = "0123456789" * 100
SHORT_S: Final = 0.05
"""The time limit of hooks that hang on purpose."""


def points(run_id: str, name: str = "first") -> list[str]:
    """The points at which a hook was told of the calls of a run."""
    return [event.point.value for told, event in TOLD[run_id] if told == name]


def _keeps(name: str) -> Callable[[ToolHookEvent], None]:
    def keep(event: ToolHookEvent) -> None:
        TOLD[str(event.run_id)].append((name, event))

    return keep


def _blocks(event: ToolHookEvent) -> None:
    raise HookBlocked("not today")


def _raises(event: ToolHookEvent) -> None:
    raise RuntimeError("a hook of the tests fails")


def _stops(event: ToolHookEvent) -> None:
    raise StopHook


async def _hangs(event: ToolHookEvent) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        LEFT.append(str(event.run_id))
        raise


async def later(event: ToolHookEvent) -> None:
    """An answer that takes its time."""
    await asyncio.sleep(0.01)
    TOLD[str(event.run_id)].append(("later", event))


def passed_on(value: str = "") -> str:
    """Give the value back, and note that it was called."""
    RAN.append(value)
    return value


def long_text() -> str:
    """Give more than hooks are shown."""
    return LONG


def breaks(why: str = "broken") -> None:
    """Fail."""
    raise ValueError(why)


def _told_of(tools: Sequence[str], point: str, **hooks: Callable[[ToolHookEvent], Any]) -> list[Hook]:
    return [
        Hook(point, func, tool=tool, name=name, timeout_s=SHORT_S if name == "hangs" else None)
        for tool in tools
        for name, func in hooks.items()
    ]


HOOKS = [
    *(Hook(point, _keeps("first"), name="first") for point in ("TOOL_PRE", "TOOL_POST", "TOOL_ERROR")),
    Hook("TOOL_PRE", later, tool="ordered"),
    *_told_of(["blocked"], "TOOL_PRE", blocks=_blocks),
    *_told_of(["raised"], "TOOL_PRE", raises=_raises),
    *_told_of(["late"], "TOOL_PRE", hangs=_hangs),
    Hook("TOOL_PRE", _stops, tool="stopped", name="stops"),
    Hook("TOOL_PRE", _blocks, tool="stopped", name="never asked"),
    Hook("TOOL_PRE", _hangs, tool="waited", name="waits", timeout_s=30),
    *_told_of(["unmoved"], "TOOL_POST", raises=_raises, blocks=_blocks, hangs=_hangs),
    *_told_of(["breaks_unmoved"], "TOOL_ERROR", raises=_raises, blocks=_blocks, hangs=_hangs),
    *(Hook(point, _keeps("last"), name="last") for point in ("TOOL_PRE", "TOOL_POST", "TOOL_ERROR")),
]

PASSING = ("free", "ordered", "blocked", "raised", "late", "stopped", "waited", "unmoved")

TOOLS = [
    long_text,
    breaks,
    Tool("breaks_unmoved", breaks),
    Tool("repeated", breaks, idempotent=True),
    *(Tool(name, passed_on) for name in PASSING),
]
