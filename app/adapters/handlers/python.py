"""Tell the handlers of this process of the callbacks of its runs, after commit and out of the runs' way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import structlog

from app.adapters.handlers.declare import Method
from app.adapters.handlers.worker import QUEUE, Worker
from app.core.callbacks import DERIVED, callbacks
from app.core.record import Entry, Reader
from app.ports.storage import RunRecord

log = structlog.get_logger("handlers")


class PythonHandlers:
    """Handlers, each with a queue and a task of its own: none can hold up a run, or another handler.

    The callbacks of a run reach a handler in their order.
    """

    def __init__(
        self,
        handlers: Sequence[tuple[str, Mapping[str, Method]]],
        *,
        timeout_s: float,
        queue: int = QUEUE,
    ) -> None:
        """`timeout_s` bounds one call; `queue` is how many callbacks may wait for each handler."""
        self._workers = [
            Worker(name, methods, timeout_s=timeout_s, queue=queue) for name, methods in handlers
        ]
        self._wanted = frozenset(name for worker in self._workers for name in worker.methods)
        self._derived = not self._wanted.isdisjoint(DERIVED)
        self._readers: dict[UUID, Reader] = {}
        self._heard: asyncio.Queue[tuple[RunRecord, Sequence[Entry], bool]] = asyncio.Queue()

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def dropped(self) -> int:
        """Callbacks that were dropped because a handler was too slow."""
        return sum(worker.dropped for worker in self._workers)

    @property
    def failed(self) -> int:
        """Calls that raised."""
        return sum(worker.failed for worker in self._workers)

    @property
    def late(self) -> int:
        """Calls that took too long."""
        return sum(worker.late for worker in self._workers)

    def heard(self, run: RunRecord, entries: Sequence[Entry], ended: bool) -> None:
        """Take what was committed for a run; a listener of the recorder."""
        self._heard.put_nowait((run, entries, ended))

    async def work(self) -> None:
        """Call handlers for ever; ends by cancellation."""
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(worker.work(), name=f"handler {worker.name}")
                await self._spread()
        finally:
            for worker in self._workers:
                worker.close()

    async def drain(self, timeout_s: float) -> None:
        """Let what waits be called, within a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._heard.join()
                for worker in self._workers:
                    await worker.settled()

    async def _spread(self) -> None:
        while True:
            run, entries, ended = await self._heard.get()
            try:
                self._offer(run, entries)
            except Exception:
                log.exception("callbacks lost", run_id=str(run.id))
            if ended:
                self._readers.pop(run.id, None)
            self._heard.task_done()
            await asyncio.sleep(0)  # a burst must not keep the runs waiting

    def _offer(self, run: RunRecord, entries: Sequence[Entry]) -> None:
        reader = self._readers.get(run.id)
        if reader is None:
            reader = self._readers[run.id] = Reader(run.id, run.branch_id, run.context)
        for _, name, text in callbacks(reader, entries, derived=self._derived):
            if name in self._wanted:
                for worker in self._workers:
                    if name in worker.methods:
                        worker.offer(name, text, run.project_id)
