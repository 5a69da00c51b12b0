"""Have an answer that cannot be used mended: up to three streams, each told what was wrong with the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from app.core.lifecycle.budget import Budget
from app.core.lifecycle.effects import Finish, Open
from app.core.lifecycle.inputs import Begin
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import LifecycleOptions
from app.core.operate.asking import Asking
from app.core.operate.read_output import Reading
from app.core.operate.repair import MAX_REPAIRS, can_be_mended, repair_prompt
from app.core.operate.schema import AnswerContract
from app.ports.ambient import Clock
from app.ports.provider import ModelEndpoint, Opening, Provider
from app.services.account import Account
from app.services.answers import faults_of, read_answer
from app.services.execution import Execution
from app.services.middle import MIDDLES
from app.services.stream import Decide, ModelStream, StreamDriver


@dataclass(frozen=True, slots=True)
class Repairer:
    """A model that mends answers, and what governs its streams."""

    endpoint: ModelEndpoint
    provider: Provider
    asking: Asking
    """How the endpoint is asked for such an answer: whether it enforces the schema."""
    options: LifecycleOptions
    clock: Clock
    draw: Callable[[], float]
    decide: Decide
    opened: int = 0
    """Streams of the run on this model before the first repair."""

    async def mend(
        self,
        execution: Execution,
        reading: Reading,
        contract: AnswerContract,
        budget: Budget,
        *,
        deadline_ms: float | None,
        validate: bool,
    ) -> tuple[Reading, Finish | None]:
        """The last reading that was made, and how the stream ended after which nothing more was tried.

        `deadline_ms` is the run's, on the monotonic clock. The stream's end is None where the answer was
        mended, or could not be after all tries.
        """
        for tried in range(MAX_REPAIRS):
            if not can_be_mended(reading):
                break
            asked = _Asked(reading, contract, tried, validate)
            finish, mended = await self._ask(execution, asked, budget, deadline_ms)
            if mended is None:
                return reading, finish
            reading = mended
        return reading, None

    async def _ask(
        self,
        execution: Execution,
        what: _Asked,
        budget: Budget,
        deadline_ms: float | None,
    ) -> tuple[Finish, Reading | None]:
        index = execution.streams
        execution.streams += 1
        now_ms, past = self.clock.mono_ms(), execution.past.streams.get(index)
        began_ms = now_ms if past is None else past.began_ms
        machine = StreamMachine(
            _options(self.options, None if deadline_ms is None else deadline_ms - began_ms),
            models=1,
            draw=self.draw,
            purpose="repair",
            calls_left=budget,
            timer=self.clock.mono_ms,
        )
        prompt = repair_prompt(
            what.reading,
            faults_of(what.reading),
            what.contract.request,
            enforced=self.asking.native_schema,
            tried=what.tried,
        )
        mended: list[Reading] = []
        account = Account(execution, index, "repair", [self.endpoint], self.clock)

        def open_model(opening: Open) -> tuple[str, ModelStream]:
            nth = self.opened + what.tried
            asked = Opening(
                self.endpoint, prompt, stream_index=nth, attempt=opening.attempt, paused=opening.paused
            )
            account.asked(asked)
            return self.provider.adapter_id, MIDDLES[self.asking.middle].open(self.provider, asked)

        def answered(*, told: bool = False) -> None:
            log, contract, validate = execution.log, what.contract, what.validate
            mended.append(
                read_answer(log, machine, contract, self.clock, stream=index, validate=validate, told=told)
            )

        driver = StreamDriver(
            machine, execution, index, open_model, self.clock, answered, self.decide, account
        )
        if past is not None and past.ended:
            finish = machine.recall(past)
            if finish.error is None:
                answered(told=True)
        else:
            first = Begin() if past is None else execution.taken_over(past)
            finish = await driver.run(machine.feed(first, now_ms))
        execution.run.attempts += machine.openings
        return finish, mended[0] if mended else None


@dataclass(frozen=True, slots=True)
class _Asked:
    """One repair."""

    reading: Reading
    """What is to be mended."""
    contract: AnswerContract
    tried: int
    """Repairs before it."""
    validate: bool


def _options(options: LifecycleOptions, left_ms: float | None) -> LifecycleOptions:
    """Without what judges or keeps the text that a person reads; the deadline is the run's."""
    total_ms = None if left_ms is None else max(1, round(left_ms))
    timeout = replace(options.timeout, total_ms=total_ms)
    return replace(options, timeout=timeout, guardrails=(), drift=None, continuation=None)
