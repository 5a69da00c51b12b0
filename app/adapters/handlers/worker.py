"""Call one handler, callback by callback, whatever it does with them."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

import structlog
from pydantic_core import from_json

from app.adapters.handlers.declare import ARGUMENTS, CallbackError, CallbackRun, Members, Method
from app.adapters.tools.threads import Threads

QUEUE: Final = 10_000
"""Callbacks that may wait for a handler; beyond that they are dropped."""
COMPLAIN_S: Final = 60.0
"""How often the log says the same of a handler."""

log = structlog.get_logger("handlers")


class Worker:
    """A handler, what waits for it, and the thread in which its plain functions run."""

    def __init__(
        self, name: str, methods: Mapping[str, Method], *, timeout_s: float, queue: int = QUEUE
    ) -> None:
        self.name = name
        self.methods = methods
        self._timeout_s = timeout_s
        self._queue: asyncio.Queue[tuple[str, str, UUID]] = asyncio.Queue(queue)
        self._threads = Threads(1, f"handler-{name}")
        self._in_thread: asyncio.Future[Any] | None = None
        self._complained: dict[str, float] = {}
        self.dropped = self.failed = self.late = 0
        """Callbacks that found no room, calls that raised, and calls that took too long."""

    def offer(self, name: str, text: str, project_id: UUID) -> None:
        """Have a callback called, if there is room; `text` is the JSON of the callback."""
        try:
            self._queue.put_nowait((name, text, project_id))
        except asyncio.QueueFull:
            self.dropped += 1
            self._complain("callbacks dropped: the handler is too slow", dropped=self.dropped)

    async def work(self) -> None:
        """Call for ever; ends by cancellation."""
        while True:
            name, text, project_id = await self._queue.get()
            try:
                method = self.methods[name]
                args, run = _given(name, text, project_id)
                kwargs = {"run": run} if method.takes_run else {}
                await self._call(name, method, partial(method.function, *args, **kwargs))
            except Exception:
                log.exception("callback lost", handler=self.name, callback=name)
            finally:
                self._queue.task_done()

    async def settled(self) -> None:
        """Wait until everything that was offered so far has been called."""
        await self._queue.join()

    def close(self) -> None:
        """Let the thread end when it is free."""
        self._threads.close()

    async def _call(self, name: str, method: Method, work: partial[Any]) -> None:
        if self._in_thread is not None and not self._in_thread.done():
            # A function that hangs cannot be stopped; only this handler waits for it.
            await asyncio.wait({self._in_thread})
        task = asyncio.create_task(self._run(name, method, work))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
            if not done:
                self.late += 1
                self._complain("call took too long", callback=name)
        finally:
            task.cancel()

    async def _run(self, name: str, method: Method, work: partial[Any]) -> None:
        try:
            result = work() if method.on_loop else await self._threaded(work)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            pass  # by us, or by itself
        except BaseException as error:  # SystemExit, too, must not reach the event loop
            self.failed += 1
            self._complain("call failed", callback=name, error=repr(error))

    async def _threaded(self, work: partial[Any]) -> Any:
        self._in_thread = asyncio.ensure_future(self._threads.run(work))
        self._in_thread.add_done_callback(_seen)
        # What runs in a thread runs to its end, also when nobody waits for it any more.
        return await asyncio.shield(self._in_thread)

    def _complain(self, what: str, **more: Any) -> None:
        now = time.monotonic()
        if now - self._complained.get(what, -COMPLAIN_S) >= COMPLAIN_S:
            self._complained[what] = now
            log.warning(what, handler=self.name, **more)


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _given(name: str, text: str, project_id: UUID) -> tuple[list[Any], CallbackRun]:
    """The arguments of a callback, which are the handler's own to do with what it likes."""
    said = from_json(text)
    args = said["args"][: len(ARGUMENTS[name])]
    match name:
        case "on_error":
            known = {key: args[0][key] for key in CallbackError.__slots__ if key in args[0]}
            args[0] = CallbackError(**known)
        case "on_complete" | "on_violation" | "on_event":
            args[0] = Members(args[0])
    branch_id = said["branch_id"]
    run = CallbackRun(
        run_id=UUID(said["run_id"]),
        project_id=project_id,
        branch_id=None if branch_id is None else UUID(branch_id),
        stream_id=UUID(said["stream_id"]),
        attempt=said["attempt"],
        fallback_index=said["fallback_index"],
        seq=said["seq"],
        ts=said["ts"],
        context=said["context"],
    )
    return args, run
