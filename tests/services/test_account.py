"""What a stream's calls used, as attempts: what was not sent counts nothing, what was paused adds up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from app.core.chunks import UsageReport
from app.core.lifecycle.effects import AttemptEnded, Open
from app.core.lifecycle.inputs import Begin
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import LifecycleOptions
from app.core.opaque import PausedTurn
from app.core.prompt import Prompt, PromptMessage
from app.core.usage.counts import Usage
from app.core.usage.prices import Price
from app.ports.attempts import NewAttempt
from app.ports.provider import Held, ModelEndpoint, Opening
from app.ports.storage import RunRecord
from app.services.account import Account
from app.services.execution import Execution
from app.services.feed import Feed
from app.services.run_log import RunLog
from app.services.stream import ModelStream, StreamDriver
from tests.support.ambient import NOW_MS, FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
ENDPOINT = ModelEndpoint("small", "x", "m", price=Price.model_validate({"input": 1, "output": 10}))
PROMPT = Prompt([PromptMessage("user", "x" * 40)])
PAUSE = AttemptEnded("paused", None, UsageReport(10, 7, 4), whole=True, heard=0)
CUT = AttemptEnded("failed", "NETWORK_ERROR", None, whole=False, heard=8)


def execution() -> Execution:
    """A run that has begun."""
    run = RunRecord(UUID(int=5), UUID(int=1), None, "operate", "running", "{}", NOW)
    return Execution(run, RunLog(run, Feed(0), FakeClock(), lambda *_: None))


def account_of(held: Execution) -> Account:
    """The account of its one stream."""
    return Account(held, 0, "main", [ENDPOINT], FakeClock())


def rows(held: Execution) -> Sequence[NewAttempt]:
    """The attempts that it has counted."""
    return [row for row in held.log.take()[0].rows if isinstance(row, NewAttempt)]


def ask(account: Account, **more: Any) -> None:
    """Have a call be sent."""
    account.asked(Opening(ENDPOINT, PROMPT, **more))
    account.sent()


async def test_a_paused_attempt_is_one_row_when_it_is_over() -> None:
    held = execution()
    account = account_of(held)
    ask(account)
    account.ended(PAUSE, 0, 1)
    assert held.totals.attempts == 0
    ask(account, paused=PausedTurn("y" * 20))
    account.ended(CUT, 0, 1)
    (row,) = rows(held)
    # 60 characters that the second call was asked, and 8 that it said.
    assert row.usage == Usage(10 + 15, 7 + 2, 4, reported=True, estimated=True)
    assert (row.outcome, row.code, row.cost) == ("failed", "NETWORK_ERROR", Decimal("0.000115"))
    assert (held.totals.attempts, held.totals.amount) == (1, row.cost)


async def test_the_next_attempt_begins_with_nothing() -> None:
    held = execution()
    account = account_of(held)
    ask(account)
    account.ended(PAUSE, 0, 1)
    account.ended(AttemptEnded("aborted", "STREAM_ABORTED", None, whole=False, heard=0), 0, 1)
    ask(account)
    account.ended(AttemptEnded("completed", None, UsageReport(1, 1), whole=True, heard=0), 0, 2)
    assert [(row.attempt, row.usage) for row in rows(held)] == [
        (1, Usage(10, 7, 4, reported=True)),
        (2, Usage(1, 1, reported=True)),
    ]


class Waiting(Held):
    """A model stream whose turn does not come."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()

    async def admitted(self) -> None:
        """See `ports.provider.Held`."""
        self.waits.set()
        await asyncio.Event().wait()

    async def __aenter__(self) -> Any:
        raise AssertionError("its turn does not come")

    async def __aexit__(self, *_: object) -> None:
        raise AssertionError("it was never entered")


async def test_a_call_that_was_given_up_before_its_turn_counts_nothing() -> None:
    held, stream = execution(), Waiting()
    account = account_of(held)
    machine = StreamMachine(LifecycleOptions(), models=1, draw=lambda: 0.5)

    def open_model(opening: Open) -> tuple[str, ModelStream]:
        account.asked(Opening(ENDPOINT, PROMPT, attempt=opening.attempt))
        return "test", stream

    driver = StreamDriver(machine, held, 0, open_model, FakeClock(), account=account)
    running = asyncio.create_task(driver.run(machine.feed(Begin(), 0)))
    async with asyncio.timeout(10):
        await stream.waits.wait()
        held.stop.request("user")
        await running
    (row,) = rows(held)
    assert (row.outcome, row.usage) == ("aborted", Usage(0, 0))
