"""One voter of a consensus: a model stream of its own, from its first attempt to an output or an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.consensus.analysis import Output
from app.core.errors import UnknownModel
from app.core.events.consensus import ConsensusOutputCollected, ConsensusStreamEnd, ConsensusStreamStart
from app.core.json_text import storable
from app.core.lifecycle.budget import Budget
from app.core.lifecycle.effects import Finish, Open
from app.core.lifecycle.inputs import Begin
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import LifecycleOptions
from app.core.lifecycle.replay import Replay
from app.core.operate.asking import Asking
from app.core.operate.read_output import EMPTY_OUTPUT, Reading
from app.core.prompt import Prompt
from app.core.usage.counts import length_of
from app.ports.ambient import Clock
from app.ports.provider import ModelEndpoint, Opening, Provider
from app.services.account import Account
from app.services.answers import faults_of, read_answer
from app.services.execution import Execution
from app.services.middle import MIDDLES
from app.services.plan import Asked
from app.services.stream import Decide, ModelStream, StreamDriver


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that can answer for a voter: its own, or a fallback."""

    endpoint: ModelEndpoint
    provider: Provider
    asking: Asking
    prompt: Callable[[], Prompt]
    """Made when it is asked."""
    stream_index: int
    """Which stream of the run on this model it would be."""


class Voter:
    """Asks one model, and keeps what came of it."""

    def __init__(
        self,
        index: int,
        weight: float,
        candidates: Sequence[Candidate],
        options: LifecycleOptions,
        budget: Budget,
        *,
        clock: Clock,
        draw: Callable[[], float],
        decide: Decide,
    ) -> None:
        """`index` is the voter's, and its stream's in the run; `budget` is shared with the other voters."""
        self.index = index
        self.weight = weight
        self.error: dict[str, Any] | None = None
        """Why there is no output."""
        self.aborted = False
        """Whether the run was ended from outside while this voter was asked."""
        self.machine = StreamMachine(
            options,
            models=len(candidates),
            draw=draw,
            purpose="voter",
            calls_left=budget,
            index=index,
            timer=clock.mono_ms,
        )
        self._decide = decide
        self._candidates = candidates
        self._clock = clock
        self._reading: Reading | None = None

    @property
    def model(self) -> str:
        """The model that answered, or failed last."""
        return self._candidate.endpoint.name

    @property
    def _candidate(self) -> Candidate:
        return self._candidates[self.machine.fallback_index]

    @property
    def output(self) -> Output:
        """What is compared."""
        value = storable(self.machine.text) if self._reading is None else self._reading.value
        return Output(value if self.error is None else None, self.weight, ok=self.error is None)

    @property
    def corrections(self) -> Sequence[str]:
        """What was mended to read its answer."""
        return () if self._reading is None or self.error is not None else self._reading.corrections

    def outcome(self) -> dict[str, Any]:
        """The voter's part of the result."""
        out: dict[str, Any] = {"index": self.index, "model": self.model, "weight": self.weight}
        out["ok"] = self.error is None
        if self.error is not None:
            out["error"] = self.error
        else:
            out["text" if self._reading is None else "value"] = self.output.value
        return out

    def asked(self, fallback_index: int) -> Asked | None:
        """See `Plan.asked`."""
        if fallback_index >= len(self._candidates):
            return None
        candidate = self._candidates[fallback_index]
        return candidate.endpoint, length_of(candidate.prompt())

    async def ask(self, execution: Execution) -> None:
        """From CONSENSUS_STREAM_START to CONSENSUS_OUTPUT_COLLECTED; a model's failure is a value."""
        log, own = execution.log, self._candidates[0].endpoint.name
        past = execution.past.streams.get(self.index)
        began = self._clock.mono_ms() if past is None else past.began_ms
        if not execution.past.told_of(self.index, ConsensusStreamStart.type):
            log.event(ConsensusStreamStart(self.index, own, self.weight))
        finish = await self._stream(execution, past)
        if finish.error is not None:
            self.error, self.aborted = finish.error.wire(), finish.aborted
        if execution.past.told_of(self.index, ConsensusStreamEnd.type):
            return
        took_ms = round(self._clock.mono_ms() - began)
        log.event(ConsensusStreamEnd(self.index, self.error is None, took_ms, self.error))
        if self.error is None:
            log.event(ConsensusOutputCollected(self.index, len(self.machine.text)))

    async def _stream(self, execution: Execution, past: Replay | None) -> Finish:
        """Its session, or the rest of one that another process has begun."""
        machine = self.machine
        if past is not None and past.fallback_index >= len(self._candidates):
            raise UnknownModel("A voter had gone on to a fallback that its options do not name any more.")
        if past is not None and past.ended:
            finish = machine.recall(past)
            if finish.error is None:
                self._answered(execution, told=True)
            return finish
        endpoints = [candidate.endpoint for candidate in self._candidates]
        account = Account(execution, self.index, "voter", endpoints, self._clock)
        driver = StreamDriver(
            machine,
            execution,
            self.index,
            lambda opening: self._open(opening, account),
            self._clock,
            lambda: self._answered(execution),
            self._decide,
            account,
        )
        first = Begin() if past is None else execution.taken_over(past)
        return await driver.run(machine.feed(first, self._clock.mono_ms()))

    def _open(self, opening: Open, account: Account) -> tuple[str, ModelStream]:
        candidate = self._candidates[opening.fallback_index]
        continuation = self.machine.options.continuation
        asked = Opening(
            candidate.endpoint,
            candidate.prompt(),
            stream_index=candidate.stream_index,
            attempt=opening.attempt,
            continue_from=opening.continue_from,
            continue_prompt=None if continuation is None else continuation.prompt,
            paused=opening.paused,
        )
        account.asked(asked)
        middle = MIDDLES[candidate.asking.middle]
        return candidate.provider.adapter_id, middle.open(candidate.provider, asked)

    def _answered(self, execution: Execution, *, told: bool = False) -> None:
        """Read the answer as soon as it is there: its events are committed together with COMPLETE."""
        machine, contract = self.machine, self._candidate.asking.contract
        if contract is not None:
            self._reading = read_answer(
                execution.log, machine, contract, self._clock, stream=self.index, told=told
            )
            if self._reading.failure is not None:
                failure = self._reading.failure
                self.error = _unusable(failure.code, failure.message, faults_of(self._reading))
        elif machine.tool_calls and not machine.text.strip():
            self.error = _unusable(EMPTY_OUTPUT, "the model asked for a tool, and none is offered", [])


def _unusable(code: str, message: str, faults: Sequence[str]) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message, "category": "model", "retryable": False}
    if faults:
        error["detail"] = {"errors": list(faults)}
    return error
