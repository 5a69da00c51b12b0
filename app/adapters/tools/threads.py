"""Run blocking functions beside the event loop, on a bounded number of threads that end with the process."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

Job = tuple[Future[Any], Callable[[], Any]]


class Threads:
    """At most `limit` threads, started when needed.

    They are daemons: `concurrent.futures` waits at exit for every thread of its own, so that one function
    which never returns would keep the process from ending.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    async def run(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, which sees the caller's context variables.

        A cancelled wait returns at once: work that has begun goes on to its end, and its result is dropped.
        Only to be called from one event loop.
        """
        context = contextvars.copy_context()
        future: Future[Any] = Future()
        self._jobs.put((future, lambda: context.run(work)))
        if not self._idle.acquire(blocking=False) and self._started < self._limit:
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let the threads end as soon as they are free."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            if future.set_running_or_notify_cancel():
                _settle(future, work)
            del future, work, job  # Whoever waits may be gone; nothing of it is kept until the next job.
            self._idle.release()


class Escaped(Exception):
    """Something was raised that must not reach an event loop: SystemExit, StopIteration and their like."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.type = type(cause).__name__


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except StopIteration as error:
        future.set_exception(Escaped(error))
    except Exception as error:
        future.set_exception(error)
    except BaseException as error:
        future.set_exception(Escaped(error))
    else:
        future.set_result(result)
