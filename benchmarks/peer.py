"""The lifecycle of the `l0` package (`ai2070-l0`) on the same streams, where it is installed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from app.core.chunks import TextDelta
from benchmarks.client import LoadFailed
from benchmarks.figures import Figures, Scale
from benchmarks.parts import deltas_of

NAMES: Final = {"bare": "line", "everything": "line", "everything_lines": "lines"}
"""As in `parts`, without JSON: its rules reject the list that is measured there."""
LONGEST: Final = 10_000
"""Tokens: with everything on, longer streams take minutes."""


def is_installed() -> bool:
    """Whether there is anything to compare with."""
    return importlib.util.find_spec("l0") is not None


def lifecycle(scale: Scale) -> Figures:
    """The same figures as `parts.lifecycle`, under `l0.`."""
    l0 = importlib.import_module("l0")
    figures: Figures = {}
    for name, kind in NAMES.items():
        options = {} if name == "bare" else _everything(l0)
        for length in (length for length in scale.lengths if length <= LONGEST):
            spent_s = _alone(_read(l0, deltas_of(length, kind), options))
            figures[f"l0.{name}_{length}_us"] = spent_s / length * 1e6
    return figures


def _everything(l0: Any) -> dict[str, Any]:
    return {
        "guardrails": l0.RECOMMENDED_GUARDRAILS(),
        "drift_detector": l0.DriftDetector(),
        "continue_from_last_good_token": True,
        "check_intervals": l0.CheckIntervals(checkpoint=5),
        "timeout": l0.Timeout(),
        "on_event": lambda event: None,
    }


def _alone(work: Coroutine[Any, Any, float]) -> float:
    """Its value, from an event loop in a thread of its own: there may be one in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _read(l0: Any, deltas: Sequence[TextDelta], options: dict[str, Any]) -> float:
    """CPU seconds of one stream, its own events made beforehand."""
    events = [l0.Event(type=l0.EventType.TOKEN, text=delta.text) for delta in deltas]
    events.append(l0.Event(type=l0.EventType.COMPLETE))
    began = time.thread_time()
    stream = await l0._internal_run(stream=_source(events), **options)
    found = sum([1 async for _ in stream])
    if found < len(deltas):
        raise LoadFailed(f"l0 gave {found} of {len(deltas)} tokens")
    return time.thread_time() - began


def _source(events: Sequence[Any]) -> Callable[[], AsyncIterator[Any]]:
    async def source() -> AsyncIterator[Any]:
        for event in events:
            yield event

    return source
