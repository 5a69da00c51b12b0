"""Natural group commit: while one batch is under way, what arrives makes the next one. Never a sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Ask = TypeVar("Ask")
Reply = TypeVar("Reply")


class Group(Generic[Ask, Reply]):
    """Collects asks and answers them a batch at a time."""

    def __init__(
        self, batch: Callable[[Sequence[Ask]], Awaitable[Sequence[Reply | BaseException]]], *, limit: int = 64
    ) -> None:
        """`batch` gives one reply or exception for each ask, in order; `limit` is the size of a batch."""
        self._batch = batch
        self._limit = limit
        self._waiting: list[tuple[Ask, asyncio.Future[Reply]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, ask: Ask) -> Reply:
        """The reply to `ask`, or its exception. Giving up the wait does not take back the ask."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((ask, future))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="group")
        return await future

    async def _work(self) -> None:
        try:
            while self._waiting:
                members = self._waiting[: self._limit]
                del self._waiting[: self._limit]
                await self._answer(members)
        finally:
            self._worker = None

    async def _answer(self, members: list[tuple[Ask, asyncio.Future[Reply]]]) -> None:
        try:
            replies: Sequence[Reply | BaseException] = await self._batch([ask for ask, _ in members])
        except Exception as failure:
            replies = [failure] * len(members)
        except BaseException:
            for _, future in members:
                future.cancel()
            raise
        for (_, future), reply in zip(members, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, BaseException):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    async def drain(self) -> None:
        """Wait until nothing is left to be answered."""
        while self._worker is not None:
            await asyncio.wait([self._worker])
