"""The exchange of one operate with its models: one stream, over attempts and fallbacks, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.core.errors import UnknownModel
from app.core.events.base import Event
from app.core.json_text import storable
from app.core.lifecycle.budget import Budget
from app.core.lifecycle.effects import Effect, Finish, Open
from app.core.lifecycle.inputs import Begin
from app.core.lifecycle.machine import StreamMachine
from app.core.operate.asking import Asking
from app.core.operate.lifecycle import Lifecycle
from app.core.operate.params import OperateParams
from app.core.operate.prompt import build_prompt
from app.core.operate.read_output import Reading
from app.core.past import Past
from app.core.prompt import Prompt, ToolSchema
from app.ports.provider import ModelEndpoint, Opening
from app.ports.storage import BranchState
from app.services.account import Account
from app.services.answers import asking_of, said, shown_history
from app.services.execution import Execution
from app.services.middle import MIDDLES
from app.services.outside import Outside
from app.services.stream import ModelStream, StreamDriver


class Exchange:
    """One stream of one machine, whatever transport its endpoints take."""

    def __init__(
        self,
        outside: Outside,
        branch: BranchState,
        params: OperateParams,
        lifecycle: Lifecycle,
        endpoints: Sequence[ModelEndpoint],
        tools: Sequence[ToolSchema],
    ) -> None:
        self._outside = outside
        self._branch = branch
        self._params = params
        self._lifecycle = lifecycle
        self.endpoints = endpoints
        self.askings = [self.asking_on(endpoint, tools) for endpoint in endpoints]
        """How each endpoint is asked: its schema and its tools."""
        self.budget = Budget(lifecycle.options.max_model_calls)
        """All model calls of the run: attempts, fallbacks and repairs."""
        self.machine = self._new_machine()

    def _new_machine(self) -> StreamMachine:
        return StreamMachine(
            self._lifecycle.options,
            models=len(self.endpoints),
            draw=self._outside.draw,
            calls_left=self.budget,
            timer=self._outside.clock.mono_ms,
        )

    def asking_on(self, endpoint: ModelEndpoint, tools: Sequence[ToolSchema]) -> Asking:
        """How an endpoint is asked for such an answer."""
        return asking_of(self._outside.providers[endpoint.provider], endpoint, self._params, tools)

    @property
    def answering(self) -> Asking:
        """How the model that answers was asked."""
        return self.askings[self.machine.fallback_index]

    def begin(self, now_ms: float) -> tuple[list[Event], list[Effect]]:
        """The first events, and what is left to be done."""
        effects = self.machine.feed(Begin(), now_ms)
        events = [effect for effect in effects if isinstance(effect, Event)]
        return events, [effect for effect in effects if not isinstance(effect, Event)]

    def follow(self, past: Past) -> None:
        """Stand as one that another process has begun: its machine is to be told of the past."""
        reached = past.streams[0].fallback_index
        if reached >= len(self.endpoints):
            raise UnknownModel("The run had gone on to a fallback that its options do not name any more.")
        self.budget = Budget(max(0, self._lifecycle.options.max_model_calls - past.calls_taken))
        self.machine = self._new_machine()

    async def carry_out(
        self,
        execution: Execution,
        effects: Sequence[Effect],
        provided: Mapping[str, Any],
        read: Callable[[], Reading | None],
    ) -> Finish:
        """Ask, and have the answer.

        `read` is called when it is complete; what it logs, and the messages of the turn, are committed
        together with COMPLETE, before any tool may run from it. `provided` is what context providers add.
        A stream that another process has begun is gone on with, and one that is over is not repeated.
        """
        machine, outside, past = self.machine, self._outside, execution.past.streams.get(0)
        execution.streams += 1
        if past is not None and past.ended:
            finish = machine.recall(past)
            if finish.error is None:
                read()
            self._tell(execution)
            return finish

        def answered() -> None:
            reading = read()
            value = reading.value if reading is not None and reading.ok else None
            by = self.endpoints[machine.fallback_index]
            execution.log.write(
                *said(outside.ids, self._branch.id, self._params, machine, by, value, provided)
            )

        account = Account(execution, 0, "main", self.endpoints, outside.clock)

        def open_model(opening: Open) -> tuple[str, ModelStream]:
            asked = self._asked(opening, provided)
            account.asked(asked)
            provider = outside.providers[asked.endpoint.provider]
            middle = MIDDLES[self.askings[opening.fallback_index].middle]
            return provider.adapter_id, middle.open(provider, asked)

        driver = StreamDriver(
            machine, execution, 0, open_model, outside.clock, answered, outside.decide, account
        )
        if past is not None:
            effects = machine.feed(execution.taken_over(past), outside.clock.mono_ms())
        finish = await driver.run(effects)
        self._tell(execution)
        return finish

    def _tell(self, execution: Execution) -> None:
        """What the run says of the stream that was its answer."""
        machine, run = self.machine, execution.run
        run.attempts, run.fallback_index = machine.openings, machine.fallback_index
        run.model = self.endpoints[machine.fallback_index].name
        run.finish_reason, run.finish_reason_raw = machine.finish_reason, machine.finish_reason_raw

    def prompt_for(self, fallback_index: int, provided: Mapping[str, Any]) -> Prompt:
        """What one of the models is asked."""
        return build_prompt(
            shown_history(self._branch, self._params),
            self._params,
            self.askings[fallback_index],
            system=self._branch.system,
            provided=provided,
        )

    def _asked(self, opening: Open, provided: Mapping[str, Any]) -> Opening:
        continuation = self._lifecycle.options.continuation
        return Opening(
            self.endpoints[opening.fallback_index],
            self.prompt_for(opening.fallback_index, provided),
            attempt=opening.attempt,
            continue_from=opening.continue_from,
            continue_prompt=None if continuation is None else continuation.prompt,
            paused=opening.paused,
        )

    def end_badly(self, execution: Execution, finish: Finish) -> None:
        """End the run as the stream ended."""
        assert finish.error is not None
        execution.run.partial_text = storable(self.machine.text) or None
        execution.finish("cancelled" if finish.aborted else "failed", error=finish.error.wire())
