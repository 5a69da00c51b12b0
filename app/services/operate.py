"""Runs of operate: params → schema → adapter → validation → actions → enrichment, in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.core.json_text import dumps, pointer
from app.core.lifecycle.effects import Effect
from app.core.lifecycle.options import LifecycleOptions
from app.core.operate.answered import Answered, requested_calls
from app.core.operate.lifecycle import Lifecycle
from app.core.operate.params import OperateParams, offered_tools, resolve
from app.core.operate.request import MAX_ACTIONS, OperateRequest
from app.core.prompt import ToolSchema
from app.core.usage.counts import length_of
from app.ports.provider import ModelEndpoint
from app.ports.storage import BranchState, RunRecord
from app.ports.tool import ToolSpec
from app.services.act import CallsWait, Proposals, ToolsFailed
from app.services.act_runs import finish_acted, settings_of
from app.services.answers import check_progression
from app.services.context import provided, turn_of
from app.services.earlier import Earlier
from app.services.exchange import Exchange
from app.services.execution import Execution
from app.services.outside import Outside, ResolvedModel
from app.services.oversight import FREE, Oversight
from app.services.plan import Asked, Plan
from app.services.repair import Repairer
from app.services.validation import Validation, failed


class OperatePlanner:
    """Plans runs of kind `operate`."""

    kind = "operate"
    converses = True

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def read(self, body: Any) -> OperateRequest:
        """The request as it was stored."""
        return OperateRequest.model_validate(body)

    async def plan(self, run: RunRecord, branch: BranchState, request: OperateRequest) -> Plan:
        """See `plan.Planner`: the parameters, and the schema for each model that may be asked."""
        outside = self._outside
        params = resolve(request, settings_of(branch))
        check_progression(branch, params)
        own = request.lifecycle.level() if request.lifecycle else None

        def lifecycle_on(model: ResolvedModel) -> Lifecycle:
            return outside.lifecycle_of(own, branch.lifecycle, model.lifecycle, branch.project_lifecycle)

        primary = await outside.model_named(run.project_id, params.chat_model, "/chat_model")
        lifecycle = lifecycle_on(primary)
        endpoints = [primary.endpoint]
        for index, name in enumerate(lifecycle.fallbacks):
            at = pointer("lifecycle", "fallbacks", index)
            endpoints.append((await outside.model_named(run.project_id, name, at)).endpoint)
        tools = await outside.tools.tools(run.project_id)
        offered = offered_tools(params.tools, tools, asked=isinstance(request.tools, list))
        shown = [ToolSchema(name, tools[name].description, tools[name].parameters) for name in offered]
        exchange = Exchange(outside, branch, params, lifecycle, endpoints, shown)
        repairer = None
        if params.parse_model is not None:
            parser = await outside.model_named(run.project_id, params.parse_model, "/parse_model")
            repairer = _repairer(outside, exchange, parser.endpoint, lifecycle_on(parser).options)
        run.model = params.chat_model
        if lifecycle.context:
            run.context = dumps(lifecycle.context).decode()
        oversight = await outside.overseer.over(run, branch) if params.actions else FREE
        validation = Validation(params, exchange, outside.clock, repairer)
        operation = _Operation(outside, params, exchange, validation, tools, oversight)
        return operation.plan(lifecycle.options.timeout.total_ms)


class _Operation:
    """One operate on its way; each phase begins only when the one before has let the run go on."""

    def __init__(
        self,
        outside: Outside,
        params: OperateParams,
        exchange: Exchange,
        validation: Validation,
        tools: Mapping[str, ToolSpec],
        oversight: Oversight,
    ) -> None:
        self._outside = outside
        self._params = params
        self._exchange = exchange
        self._validation = validation
        self._tools = tools
        self._oversight = oversight

    def plan(self, total_ms: int | None) -> Plan:
        """The first events, and the rest of the way."""
        now_ms = self._outside.clock.mono_ms()
        self._deadline_ms = None if total_ms is None else now_ms + total_ms
        events, effects = self._exchange.begin(now_ms)

        async def perform(execution: Execution) -> None:
            await self._perform(execution, effects, Earlier())

        async def recover(execution: Execution, earlier: Earlier) -> None:
            self._exchange.follow(execution.past)
            if total_ms is not None:
                self._deadline_ms = execution.past.streams[0].began_ms + total_ms
            await self._perform(execution, (), earlier)

        async def go_on(execution: Execution, resume: Any, earlier: Earlier) -> None:
            if (left_s := resume["left_s"]) is not None:
                self._deadline_ms = self._outside.clock.mono_ms() + left_s * 1000
            await self._act(execution, Answered.of(resume), earlier, execution.run.fallback_index)

        return Plan(perform, recover, events, go_on=go_on, asked=self._asked)

    def _asked(self, stream: int, fallback_index: int) -> Asked | None:
        exchange = self._exchange
        if stream > 0:
            # What a repair is told depends on an answer that is not read again.
            mends = self._validation.mends
            return None if mends is None else (mends, 0)
        if fallback_index >= len(exchange.endpoints):
            return None
        prompt = exchange.prompt_for(fallback_index, {})
        return exchange.endpoints[fallback_index], length_of(prompt)

    async def _perform(self, execution: Execution, effects: Sequence[Effect], earlier: Earlier) -> None:
        exchange, validation, params = self._exchange, self._validation, self._params
        added = await provided(self._outside.context, execution, params, self._left_s())

        # The adapter, once: whatever the transport, one logical exchange.
        finish = await exchange.carry_out(execution, effects, added, lambda: validation.read(execution))
        if finish.error is not None:
            exchange.end_badly(execution, finish)
            return

        # The outer validation: what it rejects runs no tool.
        if not await validation.accepts(execution, self._deadline_ms):
            return

        reading, machine = validation.reading, exchange.machine
        value = None if reading is None else reading.value
        native = machine.tool_calls if exchange.answering.native_tools else None
        calls = requested_calls(params, exchange.answering.contract, value, native)
        if len(calls) > MAX_ACTIONS:
            message = f"the model asked for {len(calls)} tool calls, at most {MAX_ACTIONS} are carried out"
            execution.finish("failed", error=failed("TOO_MANY_ACTIONS", message))
            return
        answered = Answered(machine.text, value, reading is not None, calls)
        await self._act(execution, answered, earlier, machine.fallback_index)

    async def _act(
        self, execution: Execution, answered: Answered, earlier: Earlier, fallback_index: int
    ) -> None:
        """Actions, then enrichment; a run that waits in between goes on here."""
        asking, params = self._exchange.askings[fallback_index], self._params
        batched = answered.batched(params)
        proposals = Proposals(
            batched.calls,
            self._tools,
            asking.offered,
            announced=bool(asking.native_tools),
            oversight=self._oversight,
            earlier=earlier,
        )
        manner = answered.manner(params.batch, asking.contract)
        try:
            with execution.within(self._left_s()):
                outcomes = await self._outside.acting.carry_out(execution, proposals, manner)
        except ToolsFailed as failure:
            execution.finish("failed", error=failure.error())
            return
        except CallsWait as wait:
            # The time for which it waits does not count; what it took before does.
            kept = {**answered.wire(), "left_s": self._left_s()}
            execution.wait(dumps(kept).decode(), wait.until, wait.reason)
            return
        responses = batched.spread(outcomes)
        finish_acted(execution, dumps(answered.result(asking.contract, responses)).decode())
        if responses:
            await self._outside.context.write_back(turn_of(execution, params), responses)

    def _left_s(self) -> float | None:
        """Seconds until the run's deadline; None without one."""
        if self._deadline_ms is None:
            return None
        return max(0.0, self._deadline_ms - self._outside.clock.mono_ms()) / 1000


def _repairer(
    outside: Outside, exchange: Exchange, endpoint: ModelEndpoint, options: LifecycleOptions
) -> Repairer:
    """Has answers mended by a model, whose options govern its own streams."""
    return Repairer(
        endpoint,
        outside.providers[endpoint.provider],
        exchange.asking_on(endpoint, ()),
        options,
        outside.clock,
        outside.draw,
        outside.decide,
        opened=int(any(endpoint.name == own.name for own in exchange.endpoints)),
    )
