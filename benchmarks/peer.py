"""The same work by the packages `l0` (`ai2070-l0`) and `lionagi`, where they are installed, in memory."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from app.core.chunks import TextDelta
from benchmarks.client import LoadFailed
from benchmarks.figures import Figures, Scale, p50
from benchmarks.loads import BATCH
from benchmarks.parts import deltas_of

T = TypeVar("T")

NAMES: Final = {"bare": "line", "everything": "line", "everything_lines": "lines"}
"""As in `parts`, without JSON: its rules reject the list that is measured there."""
LONGEST: Final = 10_000
"""Tokens: with everything on, longer streams take minutes."""


def is_installed(package: str) -> bool:
    """Whether there is anything to compare with."""
    return importlib.util.find_spec(package) is not None


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


def act(scale: Scale) -> Figures:
    """Tool calls of a branch that keeps nothing, under `lionagi.`."""
    lionagi = importlib.import_module("lionagi")
    config = importlib.import_module("lionagi.protocols.generic.log").DataLoggerConfig
    # Otherwise it writes files into the working directory when the process ends.
    branch = partial(lionagi.Branch, tools=[peer_add], log_config=config(auto_save_on_exit=False))
    return _alone(_acted(branch, scale))


async def _acted(new_branch: Callable[[], Any], scale: Scale) -> Figures:
    figures: Figures = {}
    for name, calls, count in (("act1_ms", 1, scale.acts), ("act100_ms", BATCH, scale.batches)):
        asked = [{"function": "peer_add", "arguments": {"a": n, "b": 1}} for n in range(calls)]
        times: list[float] = []
        for _ in range(count):
            branch = new_branch()
            began = time.perf_counter()
            done = await branch.act(asked)
            times.append((time.perf_counter() - began) * 1000)
            if [response.output for response in done] != [n + 1 for n in range(calls)]:
                raise LoadFailed("lionagi did not carry the calls out")
        figures[f"lionagi.{name}"] = p50(times)
    return figures


async def peer_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# The package takes no annotations that are texts.
peer_add.__annotations__ = {"a": int, "b": int, "return": int}


def _everything(l0: Any) -> dict[str, Any]:
    return {
        "guardrails": l0.RECOMMENDED_GUARDRAILS(),
        "drift_detector": l0.DriftDetector(),
        "continue_from_last_good_token": True,
        "check_intervals": l0.CheckIntervals(checkpoint=5),
        "timeout": l0.Timeout(),
        "on_event": lambda event: None,
    }


def _alone(work: Coroutine[Any, Any, T]) -> T:
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
