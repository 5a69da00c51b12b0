"""Follow here what other processes execute, and tell them of what is executed here.

A follower announces the run by a hint. The process that executes the run then hints at each commit, for as
long as the announcement is repeated: a run that nobody follows elsewhere costs nothing. Hints may be lost;
whatever is followed is looked at every few seconds too, all of it in one question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import structlog

from app.core.errors import Unavailable
from app.core.record import Entry
from app.ports.ambient import Clock
from app.ports.hints import Hints, Topic
from app.ports.storage import RunRecord
from app.services.feed import Feed, Feeds

LOOK_S: Final = 2.0
"""How often followed runs are looked at that no hint speaks of."""
DEAF_LOOK_S: Final = 0.25
"""The same while no hint can come."""
REPEAT_S: Final = 10.0
"""How often what is followed is announced again."""
FORGET_MS: Final = 25_000
"""How long an announcement holds."""
AT_ONCE: Final = 500
"""Runs in one question."""

log = structlog.get_logger("elsewhere")


class Looks(Protocol):
    """What tells how far runs have come."""

    async def standings(self, runs: Sequence[UUID]) -> Mapping[UUID, tuple[int, str]]:
        """See `RunStore`."""


class Watch:
    """One who wants to know when there is more of a run."""

    __slots__ = ("_woken", "after", "ends_only")

    def __init__(self, *, ends_only: bool) -> None:
        self.after = 0
        """Number of the last event that is known here."""
        self.ends_only = ends_only
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Have it look."""
        self._woken.set()

    def look(self, after: int = 0) -> None:
        """What comes from now on is news; to be called before looking."""
        self.after = after
        self._woken.clear()

    async def news(self, timeout_s: float) -> bool:
        """Wait until there is reason to look; False when there was none in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True


@dataclass(slots=True)
class _Announced:
    """A run that is followed in another process."""

    until_ms: float
    follows: bool = False
    """Whether every commit is of interest, and not the end alone."""
    feed: Feed | None = None
    """Where that counts as a watcher."""


class Elsewhere:
    """Who follows what in other processes, in both directions."""

    def __init__(self, looks: Looks, hints: Hints, feeds: Feeds, clock: Clock) -> None:
        self._looks = looks
        self._hints = hints
        self._feeds = feeds
        self._clock = clock
        self._watches: dict[UUID, list[Watch]] = {}
        self._announced: dict[UUID, _Announced] = {}
        self._hurried = asyncio.Event()
        feeds.on_open = self._opened

    # Following here

    @contextmanager
    def watching(self, run_id: UUID, *, ends_only: bool = False) -> Iterator[Watch]:
        """A watch on a run that is not executed here, for the block."""
        watch = Watch(ends_only=ends_only)
        others = self._watches.setdefault(run_id, [])
        if not any(other.ends_only == ends_only for other in others):
            self._hints.tell(_topic(ends_only), [run_id])
        others.append(watch)
        try:
            yield watch
        finally:
            others.remove(watch)
            if not others:
                self._watches.pop(run_id, None)

    def wake(self, run_id: UUID, *, ended: bool = True) -> None:
        """Have those look who follow a run here."""
        for watch in self._watches.get(run_id, ()):
            if ended or not watch.ends_only:
                watch.wake()

    async def work(self) -> None:
        """Look, and announce, for ever; ends by cancellation."""
        repeat_due_ms = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(DEAF_LOOK_S if self._hints.deaf else LOOK_S):
                    await self._hurried.wait()
            hurried = self._hurried.is_set()
            self._hurried.clear()
            now_ms = self._clock.mono_ms()
            self._forget(now_ms)
            if hurried or now_ms >= repeat_due_ms:
                repeat_due_ms = now_ms + REPEAT_S * 1000
                self._announce()
            try:
                await self._look()
            except Unavailable:
                pass  # the recorder says so, or the next request
            except Exception:
                log.exception("look failed")

    def _announce(self) -> None:
        for ends_only in (False, True):
            runs = [
                run_id
                for run_id, watches in self._watches.items()
                if any(watch.ends_only == ends_only for watch in watches)
            ]
            if runs:
                self._hints.tell(_topic(ends_only), runs)

    async def _look(self) -> None:
        runs = list(self._watches)
        for start in range(0, len(runs), AT_ONCE):
            asked = runs[start : start + AT_ONCE]
            found = await self._looks.standings(asked)
            for run_id in asked:
                last_seq, status = found.get(run_id, (0, "gone"))
                over = status not in ("queued", "running")
                for watch in self._watches.get(run_id, ()):
                    if status == "gone" or (over if watch.ends_only else last_seq > watch.after):
                        watch.wake()

    # Being followed elsewhere

    def heard(self, topic: Topic, runs: Sequence[UUID]) -> None:
        """See `ports.hints.Hearer`, for what concerns followers."""
        for run_id in runs:
            match topic:
                case Topic.NEWS | Topic.END:
                    self.wake(run_id, ended=topic is Topic.END)
                case Topic.FOLLOW | Topic.AWAIT:
                    self._note(run_id, follows=topic is Topic.FOLLOW)

    def missed(self) -> None:
        """See `ports.hints.Hearer`."""
        self._hurried.set()

    def _note(self, run_id: UUID, *, follows: bool) -> None:
        known = self._announced.setdefault(run_id, _Announced(0))
        known.until_ms = self._clock.mono_ms() + FORGET_MS
        if not follows or known.follows:
            return
        known.follows = True
        feed = self._feeds.get(run_id)
        if feed is not None:
            self._count(known, feed)
            # What was committed while the announcement was on its way.
            self._hints.tell(Topic.NEWS, [run_id])

    def _count(self, known: _Announced, feed: Feed) -> None:
        known.feed = feed
        feed.watchers += 1

    def _opened(self, run_id: UUID, feed: Feed) -> None:
        """A run is executed here from now on."""
        self.wake(run_id)
        known = self._announced.get(run_id)
        if known is not None and known.follows:
            self._count(known, feed)

    def _forget(self, now_ms: float) -> None:
        for run_id in [run_id for run_id, known in self._announced.items() if known.until_ms < now_ms]:
            known = self._announced.pop(run_id)
            if known.feed is not None:
                known.feed.watchers -= 1

    def committed(self, run: RunRecord, entries: Sequence[Entry], ended: bool) -> None:
        """A `Listener`: hint at what was committed here, where somebody follows it elsewhere."""
        known = self._announced.get(run.id)
        if known is None:
            return
        if ended or run.status == "waiting":
            self._hints.tell(Topic.END, [run.id])
        elif known.follows:
            self._hints.tell(Topic.NEWS, [run.id])


def _topic(ends_only: bool) -> Topic:
    return Topic.AWAIT if ends_only else Topic.FOLLOW
