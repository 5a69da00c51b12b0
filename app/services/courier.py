"""Tell webhook endpoints what happens in runs: in order, at least once, and without a run ever noticing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from app.core.errors import EventsGone, NotFound, Unavailable
from app.core.record import Entry, EventEntry
from app.core.webhooks import GONE, PAUSES_S, Answer, headers, pause_s
from app.ports.ambient import Clock
from app.ports.storage import RunRecord, RunStore
from app.ports.webhooks import Due, Outbox, Settlement, WebhookSender
from app.services.posts import Post, Stretch, next_stretch

MOST: Final = 64
"""Deliveries that a process sees to at once."""
EACH: Final = 8
"""Of them, those to one endpoint; a single one after a failure, until a post is taken again."""
POLL_S: Final = 1.0
"""How often deliveries are looked for that nobody announced: retries, and those of lost processes."""
LOOK_S: Final = 0.05
"""The least time between two looks for what is due, so that many commits or posts do not cause as many.

Where more was due to an endpoint than it had room for, the next look comes when half of the room is free.
"""
QUIET_S: Final = (1.0, 30.0)
"""How soon a run without news is looked at again: after a quarter of its age, within these bounds."""

_UNSIGNED: Final = Answer(
    None, "nothing was sent: the endpoint's secret does not open with the operator's BRANCHLINE_SEALING_KEYS"
)

log = structlog.get_logger("courier")


class Courier:
    """Sees to the deliveries whose time has come, beside those of other processes."""

    def __init__(
        self,
        outbox: Outbox,
        store: RunStore,
        sender: WebhookSender,
        clock: Clock,
        draw: Callable[[], float],
        *,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """`store` reads logs; `draw` gives random numbers from 0 to 1; `pauses_s` follow failed tries."""
        self._outbox = outbox
        self._store = store
        self._sender = sender
        self._clock = clock
        self._draw = draw
        self._pauses_s = pauses_s
        self._interests: dict[UUID, bool] = {}
        self._news: set[UUID] = set()
        self._wake = asyncio.Event()
        self._poll_due_ms = self._news_due_ms = self._room_due_ms = 0.0
        self._freed = False
        """Whether something has ended since deliveries were last claimed."""
        self._more: set[UUID] = set()
        """Endpoints that may have been owed more then."""
        self._flights: set[asyncio.Task[None]] = set()
        self._busy: Counter[UUID] = Counter()
        self._failing: set[UUID] = set()
        self.taken = self.failed = self.done = self.dead = 0
        """Posts that were taken, tries that failed, deliveries that came to their end or were given up."""

    def heard(self, run: RunRecord, entries: Sequence[Entry], ended: bool) -> None:
        """Note that something of a run was committed here."""
        eager = self._interests.get(run.project_id)
        if eager is None:
            return
        if ended or eager or any(isinstance(entry, EventEntry) and entry.callbacks for entry in entries):
            self._news.add(run.id)
            self._wake.set()

    async def work(self) -> None:
        """Deliver for ever; ends by cancellation."""
        while True:
            left_s = (self._due_ms() - self._clock.mono_ms()) / 1000
            if left_s > 0:
                # Without a task of its own, which a cancellation would leave behind.
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._wake.wait()
            self._wake.clear()
            try:
                await self._round()
            except Unavailable:
                await asyncio.sleep(POLL_S)  # the recorder says so
            except Exception:
                log.exception("round failed")
                await asyncio.sleep(POLL_S)

    async def stop(self, grace_s: float) -> None:
        """Let what is under way end, for a while; the rest is somebody else's when its lease has run out."""
        if self._flights:
            await asyncio.wait(self._flights, timeout=grace_s)
        for flight in self._flights:
            flight.cancel()
        if self._flights:
            await asyncio.wait(self._flights)

    def _due_ms(self) -> float:
        """When there is something to do, unless something else happens before."""
        due_ms = self._poll_due_ms
        if self._news:
            due_ms = min(due_ms, self._news_due_ms)
        if self._freed:
            due_ms = min(due_ms, self._room_due_ms)
        return due_ms

    async def _round(self) -> None:
        now_ms = self._clock.mono_ms()
        polled = now_ms >= self._poll_due_ms
        if polled:
            self._poll_due_ms = now_ms + POLL_S * 1000
            self._interests = dict(await self._outbox.interests())
        touched = bool(self._news) and now_ms >= self._news_due_ms
        if touched:
            self._news_due_ms = now_ms + LOOK_S * 1000
            news, self._news = self._news, set()
            try:
                await self._outbox.touch(news)
            except Unavailable:
                self._news |= news
                raise
        freed = self._freed and now_ms >= self._room_due_ms
        if self._interests and (polled or touched or freed):
            self._freed = False
            self._room_due_ms = now_ms + LOOK_S * 1000
            await self._claim()

    async def _claim(self) -> None:
        limit = MOST - len(self._flights)
        if limit <= 0:
            return
        concerned: Collection[UUID] = {*self._busy, *self._failing}
        room = {id: max(0, (1 if id in self._failing else EACH) - self._busy[id]) for id in concerned}
        claimed = await self._outbox.claim(room=room, each=EACH, limit=limit)
        for due in claimed:
            self._busy[due.endpoint_id] += 1
            flight = asyncio.create_task(self._fly(due), name=f"delivery {due.run_id}")
            self._flights.add(flight)
            flight.add_done_callback(partial(self._landed, due.endpoint_id))
        counts = Counter(due.endpoint_id for due in claimed)
        self._more = {id for id in counts if counts[id] == room.get(id, EACH) or len(claimed) == limit}

    def _landed(self, endpoint_id: UUID, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._busy[endpoint_id] -= 1
        self._busy += Counter()  # leaves out what is zero
        self._freed = True
        if endpoint_id in self._more - self._failing and self._busy[endpoint_id] <= EACH // 2:
            self._room_due_ms = 0.0
        self._wake.set()

    async def _fly(self, due: Due) -> None:
        try:
            await self._see_to(due)
        except (EventsGone, NotFound, Unavailable) as failure:
            # Its lease runs out, and somebody takes it up again, unless the run is gone, or its log.
            log.info("delivery put off", run_id=str(due.run_id), why=failure.detail)
        except Exception:
            log.exception("delivery failed by a bug", run_id=str(due.run_id))

    async def _see_to(self, due: Due) -> None:
        run = await self._store.run(due.project_id, due.run_id)
        stretch = await next_stretch(self._store, run, due)
        if stretch.post is None:
            settlement = self._onward(due, stretch, posts=due.posts)
        elif not await self._is_fixed(due, stretch):
            return
        else:
            settlement = await self._try(due, stretch, stretch.post)
        if await self._outbox.settle(due, settlement):
            self.done += settlement.status == "done"
            self.dead += settlement.status == "dead"

    async def _is_fixed(self, due: Due, stretch: Stretch) -> bool:
        """Whether every further try would be of the same post; False when the lease is another's."""
        # A log does not grow beyond its end, so neither does a post that reaches it.
        return due.post_seq is not None or stretch.ended or await self._outbox.fix(due, stretch.last_seq)

    def _onward(self, due: Due, stretch: Stretch, *, posts: int) -> Settlement:
        quiet_s = min(max(due.age_s / 4, QUIET_S[0]), QUIET_S[1])
        return Settlement(
            status="done" if stretch.ended else "pending",
            delivered_seq=stretch.last_seq,
            posts=posts,
            pause_s=0.0 if stretch.more else quiet_s,
        )

    async def _try(self, due: Due, stretch: Stretch, post: Post) -> Settlement:
        answer = _UNSIGNED
        if due.secrets:
            signed = headers(post.id, self._clock.wall_ms() // 1000, post.body, due.secrets)
            answer = await self._sender.post(due.url, signed, post.body)
        if answer.delivered:
            self.taken += 1
            self._failing.discard(due.endpoint_id)
            onward = self._onward(due, stretch, posts=due.posts + 1)
            return replace(onward, answer=answer)
        self.failed += 1
        self._failing.add(due.endpoint_id)
        failures = due.failures + 1
        wait_s = pause_s(answer, failures, self._draw(), self._pauses_s)
        if wait_s is None:
            log.warning("delivery given up", run_id=str(due.run_id), endpoint_id=str(due.endpoint_id))
        return Settlement(
            status="dead" if wait_s is None else "pending",
            delivered_seq=due.delivered_seq,
            posts=due.posts,
            failures=failures,
            pause_s=wait_s or 0.0,
            answer=answer,
            disable="gone" if answer.status == GONE else None,
        )
