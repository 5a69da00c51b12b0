"""Cut work off when its run is stopped, or its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from app.core.action.verdict import Cancelled, Failed
from app.services.execution import Stop

T = TypeVar("T")


async def unless_cut_off(
    work: Coroutine[Any, Any, T], stop: Stop, limit_s: float | None = None
) -> T | Failed | Cancelled:
    """What comes of the work, which runs in a task of its own.

    It is cut off by a stop, by the limit, and when the caller is cancelled, who is told so as a value. What
    it does then, and whatever it says, is waited for and of no interest.
    """
    caller = asyncio.current_task()
    assert caller is not None
    if stop.source is not None:
        work.close()
        return Cancelled()
    task, cancelled = asyncio.create_task(work), caller.cancelling()
    why: Failed | Cancelled | None = None

    def cut(reason: Failed | Cancelled) -> None:
        nonlocal why
        if why is None and not task.done():
            why = reason
            task.cancel()

    def stopped(_: object) -> None:
        cut(Cancelled())

    def late() -> None:
        cut(Failed("TIMEOUT", f"the tool gave no result within {limit_s:g} s"))

    # Not `asyncio.wait` for two, which costs as much again as the task: a batch has many of these.
    stop.requested.add_done_callback(stopped)
    timer = None if limit_s is None else asyncio.get_running_loop().call_later(limit_s, late)
    try:
        done = await task
    except asyncio.CancelledError:
        return why or Cancelled()
    except Exception:
        if why is None and caller.cancelling() == cancelled:
            raise
        return why or Cancelled()
    finally:
        stop.requested.remove_done_callback(stopped)
        if timer is not None:
            timer.cancel()
    if caller.cancelling() > cancelled:
        return why or Cancelled()  # the work would not hear of it
    return why or done
