"""The courier's own work: when it looks for deliveries, what it remembers, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import pytest

from app.core.errors import NotFound, Unavailable
from app.core.events.base import Callback
from app.core.events.retry import RetryAttempt
from app.core.events.run import RunCompleted
from app.core.record import Entry
from app.core.webhooks import Answer, secret_of
from app.ports.storage import RunRecord, RunStore
from app.ports.webhooks import Due, Settlement, WebhookSender
from app.services.courier import EACH, MOST, Courier
from app.services.entries import entry_of
from tests.support.ambient import FakeClock
from tests.support.polling import until

pytestmark = pytest.mark.anyio

PROJECT, ENDPOINT = UUID(int=1), UUID(int=2)
SECRET = secret_of(b"s" * 32)
LOG: list[Entry] = [
    entry_of(RunCompleted("x", None, None).then(Callback("on_complete", ({"content": "x"},))), 1, 10)
]


def run_of(number: int) -> RunRecord:
    now = datetime.now(UTC)
    return RunRecord(UUID(int=number), PROJECT, UUID(int=3), "operate", "completed", "{}", now)


class Rows:
    """An outbox with one endpoint, and a store of runs that have ended; it can be out of reach."""

    def __init__(self, owed: int = 0, *, secrets: Sequence[str] = (SECRET,)) -> None:
        self.owed = [run_of(number).id for number in range(10, 10 + owed)]
        self.secrets = secrets
        self.log = LOG
        self.fixed: list[tuple[UUID, int]] = []
        self.away = False
        self.failed_touches = 0
        self.touched: list[UUID] = []
        self.claims = 0
        self.settled: list[tuple[UUID, Settlement]] = []

    async def interests(self) -> Mapping[UUID, bool]:
        """See the port."""
        return {PROJECT: True}

    async def touch(self, runs: Collection[UUID]) -> None:
        """See the port."""
        if self.away:
            self.failed_touches += 1
            raise Unavailable("away")
        self.touched += runs

    async def claim(self, *, room: Mapping[UUID, int], each: int, limit: int) -> Sequence[Due]:
        """See the port."""
        self.claims += 1
        count = min(room.get(ENDPOINT, each), limit)
        taken, self.owed = self.owed[:count], self.owed[count:]
        return [
            Due(ENDPOINT, run, PROJECT, 1, 0, None, 0, 0, "http://x", self.secrets, None, (), 0.0)
            for run in taken
        ]

    async def fix(self, due: Due, last_seq: int) -> bool:
        """See the port."""
        self.fixed.append((due.run_id, last_seq))
        return True

    async def settle(self, due: Due, settlement: Settlement) -> bool:
        """See the port."""
        self.settled.append((due.run_id, settlement))
        return True

    async def run(self, project_id: UUID, run_id: UUID) -> RunRecord:
        """See the port."""
        if project_id != PROJECT:
            raise NotFound("no such run")
        return run_of(run_id.int)

    async def page(self, run_id: UUID, *, after: int, limit: int) -> Sequence[Entry]:
        """See the port."""
        return [entry for entry in self.log if entry.seq > after]


class Sender:
    """Answers every post, once it is let."""

    def __init__(self, *, holding: bool = False, status: int = 204) -> None:
        self.status = status
        self.free = asyncio.Event()
        if not holding:
            self.free.set()
        self.under_way = self.most = self.called_off = 0

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """See the port."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # as a connection needs to be closed
            self.called_off += 1
            raise
        finally:
            self.under_way -= 1
        return Answer(self.status)


def courier_of(rows: Rows, sender: Sender, clock: FakeClock) -> Courier:
    return Courier(rows, cast(RunStore, rows), cast(WebhookSender, sender), clock, lambda: 0.5)


@asynccontextmanager
async def working(courier: Courier) -> AsyncIterator[None]:
    task = asyncio.create_task(courier.work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_cancelled_work_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    rows = Rows()
    async with working(courier_of(rows, Sender(), FakeClock())):
        await until(lambda: rows.claims)
        await asyncio.sleep(0)  # it waits for news now
    assert asyncio.all_tasks() == before


async def test_what_is_owed_follows_as_soon_as_there_is_room_and_not_at_the_next_look() -> None:
    rows, sender = Rows(owed=5 * EACH), Sender()
    # The clock stands still: nothing is looked for at its time but once.
    async with working(courier_of(rows, sender, FakeClock())):
        await until(lambda: len(rows.settled) == 5 * EACH)
    assert [settlement.status for _, settlement in rows.settled] == ["done"] * 5 * EACH
    assert sender.most <= EACH < MOST


async def test_a_receiver_that_fails_is_tried_one_by_one_and_not_at_every_end() -> None:
    rows, sender, clock = Rows(owed=5 * EACH), Sender(status=500), FakeClock()
    async with working(courier_of(rows, sender, clock)):
        await until(lambda: len(rows.settled) == EACH)
        clock.now_ms += 50
        await until(lambda: len(rows.settled) == EACH + 1)
    assert rows.claims == 2


async def test_where_a_post_ends_is_noted_first_unless_the_log_ends_there() -> None:
    rows = Rows(owed=1)
    async with working(courier_of(rows, Sender(), FakeClock())):
        await until(lambda: rows.settled)
    assert rows.fixed == []
    rows = Rows(owed=1)
    rows.log = [entry_of(RetryAttempt(1, "network", 0, 3).then(Callback("on_retry", (1, "network"))), 1, 10)]
    async with working(courier_of(rows, Sender(), FakeClock())):
        await until(lambda: rows.settled)
    assert rows.fixed == [(run_of(10).id, 1)]


async def test_without_anything_to_do_it_looks_only_at_its_time() -> None:
    rows, clock = Rows(), FakeClock()
    courier = courier_of(rows, Sender(), clock)
    async with working(courier):
        await until(lambda: rows.claims == 1)
        rows.owed = [run_of(99).id]
        courier.heard(
            RunRecord(run_of(98).id, UUID(int=7), None, "act", "running", "{}", datetime.now(UTC)), LOG, True
        )
        clock.now_ms += 1_000
        await until(lambda: rows.settled)
    assert rows.touched == []  # for a project without endpoints there is no news


async def test_news_outlive_a_database_that_is_away() -> None:
    rows, clock = Rows(), FakeClock()
    courier = courier_of(rows, Sender(), clock)
    async with working(courier):
        await until(lambda: rows.claims)
        rows.away = True
        courier.heard(run_of(50), LOG, True)
        await until(lambda: rows.failed_touches)
        courier.heard(run_of(51), LOG, True)
        rows.away = False
        clock.now_ms += 1_000
        await until(lambda: rows.touched)
    assert set(rows.touched) == {run_of(50).id, run_of(51).id}


async def test_what_is_called_off_at_the_end_has_ended_when_the_end_is_over() -> None:
    before = asyncio.all_tasks()
    rows, sender = Rows(owed=3), Sender(holding=True)
    courier = courier_of(rows, sender, FakeClock())
    async with working(courier):
        await until(lambda: sender.under_way == 3)
    await courier.stop(0.01)
    assert (sender.called_off, rows.settled) == (3, [])
    assert asyncio.all_tasks() == before


async def test_what_is_under_way_at_the_end_may_end() -> None:
    rows, sender = Rows(owed=3), Sender(holding=True)
    courier = courier_of(rows, sender, FakeClock())
    async with working(courier):
        await until(lambda: sender.under_way == 3)
    asyncio.get_running_loop().call_soon(sender.free.set)
    await courier.stop(10)
    assert (len(rows.settled), courier.taken, courier.done) == (3, 3, 3)


async def test_nothing_is_posted_that_cannot_be_signed() -> None:
    rows, sender = Rows(owed=1, secrets=[]), Sender()
    async with working(courier_of(rows, sender, FakeClock())):
        await until(lambda: rows.settled)
    ((_, settlement),) = rows.settled
    assert sender.most == 0
    assert (settlement.status, settlement.failures) == ("pending", 1)
    assert settlement.answer is not None
    assert "BRANCHLINE_SEALING_KEYS" in str(settlement.answer.error)
