"""Hints by NOTIFY: all of them arrive elsewhere, none at home, and who was cut off is told so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db import hints
from app.adapters.db.engine import driver_arguments
from app.adapters.db.hints import PostgresHints
from app.ports.hints import Topic
from app.services.background import background
from tests.support.polling import until
from tests.support.relay import Relay

pytestmark = pytest.mark.anyio


@dataclass
class Ear:
    """Notes what it hears."""

    carrier: PostgresHints
    told: list[tuple[Topic, list[UUID]]] = field(default_factory=list)
    gaps: int = 0

    def heard(self, topic: Topic, runs: Sequence[UUID]) -> None:
        """See the port."""
        self.told.append((topic, list(runs)))

    def missed(self) -> None:
        """See the port."""
        self.gaps += 1


@asynccontextmanager
async def processes(url: str, count: int) -> AsyncIterator[list[Ear]]:
    """As many that listen."""
    ears = [Ear(PostgresHints(driver_arguments(url))) for _ in range(count)]
    async with AsyncExitStack() as stack:
        for ear in ears:
            await stack.enter_async_context(background(ear.carrier.work(ear)))
        await until(lambda: not any(ear.carrier.deaf for ear in ears))
        yield ears


async def test_what_one_tells_all_others_hear(database_url: str) -> None:
    runs = [UUID(int=number) for number in range(1_000)]
    async with processes(database_url, 3) as (teller, *others):
        teller.carrier.tell(Topic.NEWS, runs[:10])
        teller.carrier.tell(Topic.NEWS, runs)
        teller.carrier.tell(Topic.WORK)
        for other in others:
            await until(lambda other=other: (Topic.WORK, []) in other.told)  # type: ignore[misc]
            heard = [run for topic, runs in other.told for run in runs if topic is Topic.NEWS]
            assert sorted(heard) == runs
            assert len(other.told) <= 1 + 2 * (1 + 1_000 // hints.MOST_IDS)
        assert teller.told == []
        assert [ear.gaps for ear in (teller, *others)] == [1, 1, 1]


async def test_who_was_cut_off_learns_that_hints_may_be_missing(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    async with processes(database_url, 2) as (one, other):
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'branchline' AND datname = current_database()"
        )
        await until(lambda: one.carrier.deaf and other.carrier.deaf)
        one.carrier.tell(Topic.NEWS, [UUID(int=1)])  # nobody could hear it, and it is not kept
        await until(lambda: (one.gaps, other.gaps) == (2, 2))
        one.carrier.tell(Topic.END, [UUID(int=2)])
        await until(lambda: other.told)
        assert other.told == [(Topic.END, [UUID(int=2)])]
    await connection.close()


async def test_a_connection_that_is_lost_without_a_word_is_found_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "PING_S", 0.05)
    monkeypatch.setattr(hints, "PATIENCE_S", 0.5)
    async with Relay(database_url) as relay, processes(relay.url, 1) as (one,):
        relay.forget()
        await until(lambda: one.gaps == 2)


async def test_what_is_not_understood_is_passed_over(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    async with processes(database_url, 1) as (one,):
        for payload in ("", "z", "n*", "nAAA=", "é"):
            await connection.execute("SELECT pg_notify($1, $2)", hints.CHANNEL, payload)
        await connection.execute("SELECT pg_notify($1, $2)", hints.CHANNEL, "w")
        await until(lambda: one.told)
        assert one.told == [(Topic.WORK, [])]
    await connection.close()


async def test_what_is_told_last_is_heard_when_its_teller_waits_for_it(database_url: str) -> None:
    async with processes(database_url, 1) as (other,):
        async with processes(database_url, 1) as (leaving,):
            leaving.carrier.tell(Topic.WORK)
            await leaving.carrier.drain(10)
        await until(lambda: other.told == [(Topic.WORK, [])])
        await other.carrier.drain(0.01)  # with nothing to tell there is nothing to wait for
