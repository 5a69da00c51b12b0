"""Handlers as a plug-in declares them; what they were told is kept by run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from app.adapters.handlers.declare import CallbackRun, Handlers

TOLD: defaultdict[str, list[tuple[str, tuple[Any, ...]]]] = defaultdict(list)
"""By run id: the name and the arguments of each callback, in order."""


def _keeps(name: str) -> Any:
    def keep(*args: Any, run: CallbackRun) -> None:
        TOLD[str(run.run_id)].append((name, args))

    return keep


async def _hangs(*args: Any) -> None:
    await asyncio.Event().wait()


def _raises(*args: Any) -> None:
    raise RuntimeError("a handler of the tests fails")


HANDLERS = [
    Handlers(
        on_start=_keeps("on_start"),
        on_complete=_keeps("on_complete"),
        on_error=_keeps("on_error"),
        on_event=_keeps("on_event"),
        on_violation=_keeps("on_violation"),
        on_retry=_keeps("on_retry"),
        on_fallback=_keeps("on_fallback"),
        on_resume=_keeps("on_resume"),
        on_checkpoint=_keeps("on_checkpoint"),
        on_timeout=_keeps("on_timeout"),
        on_abort=_keeps("on_abort"),
        on_drift=_keeps("on_drift"),
        on_tool_call=_keeps("on_tool_call"),
        on_token=_keeps("on_token"),
    ),
    Handlers(on_start=_hangs, on_token=_hangs),
    Handlers(on_start=_raises, on_complete=_raises),
]
