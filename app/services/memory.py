"""Remember what was read for a short while, so that the hot path does not ask the database each time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from app.ports.ambient import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """At most `most` values, each for `ms` milliseconds; the oldest gives way."""

    def __init__(self, clock: Clock, ms: float, *, most: int) -> None:
        self._clock = clock
        self._ms = ms
        self._most = most
        self._held: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._searches: dict[K, asyncio.Task[V]] = {}

    async def find(self, key: K, search: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The value that is remembered, else the one that `search` gives; raises what that raises.

        Whoever asks while it is being searched for waits for the same search: all requests under way would
        otherwise ask the database in the moment in which a value has to be read again.
        """
        held = self._held.get(key)
        if held is not None and held[0] > self._clock.mono_ms():
            return held[1]
        searching = self._searches.get(key)
        if searching is None:
            searching = self._searches[key] = asyncio.create_task(self._search(key, search))
        # A request that is called off must not take the others' search with it.
        return await asyncio.shield(searching)

    async def _search(self, key: K, search: Callable[[], Coroutine[Any, Any, V]]) -> V:
        this = asyncio.current_task()
        try:
            value = await search()
            if self._searches.get(key) is this:
                self._put(key, value)
            return value
        finally:
            if self._searches.get(key) is this:
                del self._searches[key]

    def _put(self, key: K, value: V) -> None:
        self._held[key] = (self._clock.mono_ms() + self._ms, value)
        self._held.move_to_end(key)
        if len(self._held) > self._most:
            self._held.popitem(last=False)

    def forget_all(self) -> None:
        """Remember nothing, not even what is being searched for now: it may be read already, and old."""
        self._held.clear()
        self._searches.clear()
