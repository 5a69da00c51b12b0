"""Attempts whose ends nobody saw, when their run is ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from app.core.errors import Unavailable, UnknownModel
from app.core.usage.counts import Usage
from app.core.usage.prices import Price
from app.ports.attempts import LostAttempt, NewAttempt
from app.ports.provider import ModelEndpoint
from app.ports.storage import RunRecord
from app.services.execution import Execution
from app.services.feed import Feed
from app.services.lost_attempts import LostAttempts
from app.services.plan import Asked, Plan
from app.services.run_log import RunLog
from tests.support.ambient import NOW_MS, FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
RUN = UUID(int=5)
PRICE = Price.model_validate({"input": 1, "output": 10})
ENDPOINT = ModelEndpoint("small", "openai", "gpt", price=PRICE)
LOST = LostAttempt(0, 1, 2, "main", 1, 9, NOW)
ENDED = NewAttempt(
    *(0, 0, 1, "main", "small", "openai", "gpt", "failed", "NETWORK_ERROR"),
    Usage(40, 6, reported=True),
    Decimal("0.5"),
    NOW,
    NOW,
)


class Stored:
    """What the log of a run tells of its attempts."""

    def __init__(self, ended: Sequence[NewAttempt], lost: Sequence[LostAttempt]) -> None:
        self.found = ended, lost

    async def attempts_of(self, run_id: UUID) -> tuple[Sequence[NewAttempt], Sequence[LostAttempt]]:
        """Of the one run."""
        assert run_id == RUN
        return self.found


def asked(stream: int, fallback_index: int) -> Asked:
    """Every stream asks twenty characters of the same model."""
    return ENDPOINT, 20


async def perform(execution: Execution) -> None:
    raise AssertionError("a run that is to be ended is not begun")


async def planned(run: RunRecord) -> Plan:
    return Plan(perform, lambda execution, _: perform(execution), asked=asked)


def execution() -> Execution:
    """A run that was taken over."""
    run = RunRecord(RUN, UUID(int=1), None, "operate", "running", "{}", NOW)
    clock = FakeClock()
    return Execution(run, RunLog(run, Feed(0), clock, lambda *_: None))


async def test_they_are_estimated_at_the_price_of_their_model() -> None:
    held = execution()
    await LostAttempts(Stored([ENDED], [LOST]), planned, FakeClock()).count(held)
    flush, _ = held.log.take()
    assert flush.rows == [
        NewAttempt(
            *(0, 1, 2, "main", "small", "openai", "gpt", "lost", None),
            Usage(5, 3, estimated=True),
            Decimal("0.000035"),
            NOW,
            NOW,
        )
    ]
    assert held.totals.kept() is not None
    assert (held.totals.attempts, held.totals.input_tokens, held.totals.amount) == (
        2,
        45,
        Decimal("0.500035"),
    )


@pytest.mark.parametrize(
    "refusal", [UnknownModel("it is gone"), Unavailable("its key is not set"), KeyError("a bug")]
)
async def test_a_run_that_cannot_be_planned_any_more_is_counted_from_its_log(refusal: Exception) -> None:
    async def gone(run: RunRecord) -> Plan:
        raise refusal

    held = execution()
    await LostAttempts(Stored([], [LOST]), gone, FakeClock()).count(held)
    (row,) = held.log.take()[0].rows
    assert isinstance(row, NewAttempt)
    assert (row.model, row.usage, row.cost) == (None, Usage(0, 3, estimated=True), None)
    assert held.totals.cost() is None


async def test_every_call_of_one_that_was_paused_read_the_prompt() -> None:
    held = execution()
    await LostAttempts(Stored([], [replace(LOST, calls=3)]), planned, FakeClock()).count(held)
    (row,) = held.log.take()[0].rows
    assert isinstance(row, NewAttempt)
    assert row.usage == Usage(15, 3, estimated=True)


async def test_what_a_run_had_counted_stays_where_there_are_no_rows() -> None:
    held = execution()
    held.totals.add(Usage(7, 1), None)
    await LostAttempts(Stored([], []), planned, FakeClock()).count(held)
    assert held.totals.input_tokens == 7
    assert held.log.take()[0].rows == []
