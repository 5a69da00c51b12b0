"""Runs of operate: params, schema, one model stream, validation, actions, enrichment, in that order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from app.core.action.normalize import ActionCall, proposed
from app.core.errors import FieldError, Invalid, UnknownModel
from app.core.events.base import Event
from app.core.events.run import ResultValidated
from app.core.guardrails.base import Rule
from app.core.guardrails.presets import BadGuardrails
from app.core.json_text import dumps, pointer, storable
from app.core.lifecycle import faults
from app.core.lifecycle.budget import Budget
from app.core.lifecycle.effects import Effect, Finish, Open
from app.core.lifecycle.inputs import Begin
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import LifecycleOptions
from app.core.operate.asking import Asking
from app.core.operate.dedupe import collapsed, one_by_one
from app.core.operate.lifecycle import Contradiction, Lifecycle, merge_lifecycle
from app.core.operate.params import Batch, OperateParams, offered_tools, resolve
from app.core.operate.prompt import build_prompt
from app.core.operate.read_output import Reading
from app.core.operate.request import MAX_ACTIONS, OperateRequest
from app.core.operate.schema import enrich
from app.core.prompt import ToolSchema
from app.ports.ambient import Clock, IdSource
from app.ports.context import ContextProviders, NoContext
from app.ports.provider import ModelEndpoint, Opening, Provider
from app.ports.storage import BranchState, RunRecord
from app.ports.tool import ToolCatalog, ToolSpec
from app.services.act import Acting, CallsWait, Proposals, ToolsFailed
from app.services.act_runs import finish_acted, settings_of
from app.services.answers import asking_of, check_progression, faults_of, read_answer, said, shown_history
from app.services.context import provided, turn_of
from app.services.earlier import Earlier
from app.services.execution import Execution
from app.services.oversight import FREE, Overseer, Oversight
from app.services.plan import Plan
from app.services.repair import Repairer
from app.services.stream import Decide, ModelStream, StreamDriver, nobody


class ResolvedModel(Protocol):
    """A registered model, as the catalog gives it."""

    @property
    def endpoint(self) -> ModelEndpoint:
        """How it is called."""

    @property
    def lifecycle(self) -> Mapping[str, Any] | None:
        """Its own lifecycle options."""


class ModelCatalog(Protocol):
    """The models of a project."""

    async def resolve(self, project_id: UUID, name: str) -> ResolvedModel:
        """A model by its name. Raises UnknownModel, Unavailable."""


async def model_named(models: ModelCatalog, project_id: UUID, name: str, at: str) -> ResolvedModel:
    """A model that the request names at a pointer. Raises UnknownModel with that pointer, Unavailable."""
    try:
        return await models.resolve(project_id, name)
    except UnknownModel as unknown:
        where = FieldError(at, f"no model {name!r} is registered", "unknown_model")
        raise UnknownModel(unknown.detail, errors=[where]) from None


@dataclass(frozen=True, slots=True)
class Outside:
    """What runs of operate need from the outside."""

    models: ModelCatalog
    providers: Mapping[str, Provider]
    tools: ToolCatalog
    acting: Acting
    overseer: Overseer
    clock: Clock
    ids: IdSource
    draw: Callable[[], float]
    """Random numbers from 0 up to 1."""
    lifecycle: Mapping[str, Any] | None = None
    """Lifecycle options of the settings."""
    decide: Decide = nobody
    """Answers what machines ask."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Guardrails beside the built-in ones, by name."""
    context: ContextProviders = field(default_factory=NoContext)
    """Add to instructions, and are told of the tool calls that came of them."""

    def lifecycle_of(self, *levels: Mapping[str, Any] | None) -> Lifecycle:
        """What the levels, the one that counts most first, come to over the settings. Raises Invalid."""
        try:
            return merge_lifecycle(*levels, self.lifecycle, rules=self.rules)
        except BadGuardrails as bad:
            at = [FieldError(pointer("lifecycle", "guardrails", *path), told) for path, told in bad.faults]
            raise Invalid("A guardrail cannot be applied.", errors=at) from None
        except Contradiction as bad:
            where = FieldError(pointer("lifecycle", *bad.path), f"contradictory: {bad}", "contradictory")
            raise Invalid("The levels' options contradict each other.", errors=[where]) from None


class OperatePlanner:
    """Plans runs of kind `operate`."""

    kind = "operate"

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def read(self, body: Any) -> OperateRequest:
        """The request as it was stored."""
        return OperateRequest.model_validate(body)

    async def plan(self, run: RunRecord, branch: BranchState, request: OperateRequest) -> Plan:
        """See `plan.Planner`."""
        outside = self._outside
        params = resolve(request, settings_of(branch))
        check_progression(branch, params)
        own = request.lifecycle.level() if request.lifecycle else None

        def lifecycle_on(model: ResolvedModel) -> Lifecycle:
            return outside.lifecycle_of(own, branch.lifecycle, model.lifecycle, branch.project_lifecycle)

        primary = await model_named(outside.models, run.project_id, params.chat_model, "/chat_model")
        lifecycle = lifecycle_on(primary)
        endpoints = [primary.endpoint]
        for index, name in enumerate(lifecycle.fallbacks):
            at = pointer("lifecycle", "fallbacks", index)
            fallback = await model_named(outside.models, run.project_id, name, at)
            endpoints.append(fallback.endpoint)
        tools = await outside.tools.tools(run.project_id)
        offered = offered_tools(params.tools, tools, asked=isinstance(request.tools, list))
        run.model = params.chat_model
        if lifecycle.context:
            run.context = dumps(lifecycle.context).decode()
        parser = None
        if params.parse_model is not None:
            model = await model_named(outside.models, run.project_id, params.parse_model, "/parse_model")
            parser = model.endpoint, lifecycle_on(model).options
        oversight = await outside.overseer.over(run, branch) if params.actions else FREE
        operation = _Operation(outside, branch, params, lifecycle, endpoints, tools, offered, oversight)
        return operation.plan(parser)


class _Operation:
    """One operate, from its plan to its result."""

    def __init__(
        self,
        outside: Outside,
        branch: BranchState,
        params: OperateParams,
        lifecycle: Lifecycle,
        endpoints: Sequence[ModelEndpoint],
        tools: Mapping[str, ToolSpec],
        offered: Sequence[str],
        oversight: Oversight,
    ) -> None:
        self._outside = outside
        self._oversight = oversight
        self._branch = branch
        self._params = params
        self._endpoints = endpoints
        self._tools = tools
        shown = [ToolSchema(name, tools[name].description, tools[name].parameters) for name in offered]
        self._askings = [self._asking(endpoint, shown) for endpoint in endpoints]
        self._lifecycle = lifecycle
        self._budget = Budget(lifecycle.options.max_model_calls)
        """All model calls of the run: attempts, fallbacks and repairs."""
        self._machine = StreamMachine(
            lifecycle.options,
            models=len(endpoints),
            draw=outside.draw,
            calls_left=self._budget,
            timer=outside.clock.mono_ms,
        )
        self._fallback: int | None = None
        """Which model answered before the run waited; None while that is the machine's to say."""
        self._execution: Execution
        self._repairer: Repairer | None = None
        self._reading: Reading | None = None
        self._provided: Mapping[str, Any] = {}
        """What context providers added to the instruction."""
        self._responses: Sequence[Mapping[str, Any]] = ()
        """What the tool calls gave, as the result has it."""

    def _asking(self, endpoint: ModelEndpoint, tools: Sequence[ToolSchema]) -> Asking:
        return asking_of(self._outside.providers[endpoint.provider], endpoint, self._params, tools)

    @property
    def _answering(self) -> Asking:
        """How the model that answers was asked."""
        return self._askings[self._machine.fallback_index if self._fallback is None else self._fallback]

    def plan(self, parser: tuple[ModelEndpoint, LifecycleOptions] | None) -> Plan:
        """The first events, and the rest of the way; `parser` mends answers that cannot be used.

        Its options govern its own streams; the deadline and the model calls are the run's.
        """
        now_ms = self._outside.clock.mono_ms()
        total_ms = self._lifecycle.options.timeout.total_ms
        self._deadline_ms = None if total_ms is None else now_ms + total_ms
        if parser is not None:
            self._repairer = self._repairer_on(*parser)
        effects = self._machine.feed(Begin(), now_ms)
        events = [effect for effect in effects if isinstance(effect, Event)]
        rest = [effect for effect in effects if not isinstance(effect, Event)]

        async def perform(execution: Execution) -> None:
            self._execution = execution
            context = self._outside.context
            self._provided = await provided(context, execution, self._params, self._left_s())
            finish = await self._stream(rest)
            if finish.error is not None:
                self._end_badly(finish)
            else:
                await self._end_well()
            await self._write_back()

        async def go_on(execution: Execution, resume: Any, earlier: Earlier) -> None:
            self._execution = execution
            self._fallback = execution.run.fallback_index
            if (left_s := resume.get("left_s")) is not None:
                self._deadline_ms = self._outside.clock.mono_ms() + left_s * 1000
            await self._act(_Answered.of(resume), earlier)
            await self._write_back()

        return Plan(perform, events, go_on)

    async def _write_back(self) -> None:
        """Tell the context providers what the tool calls gave."""
        if self._responses:
            turn = turn_of(self._execution, self._params)
            await self._outside.context.write_back(turn, self._responses)

    def _repairer_on(self, endpoint: ModelEndpoint, options: LifecycleOptions) -> Repairer:
        outside = self._outside
        return Repairer(
            endpoint,
            outside.providers[endpoint.provider],
            self._asking(endpoint, ()),
            options,
            outside.clock,
            outside.draw,
            outside.decide,
            opened=int(any(endpoint.name == own.name for own in self._endpoints)),
        )

    # The model stream.

    async def _stream(self, effects: Sequence[Effect]) -> Finish:
        execution, machine = self._execution, self._machine
        execution.streams += 1
        outside = self._outside
        driver = StreamDriver(
            machine, execution, 0, self._open, outside.clock, self._answered, outside.decide
        )
        finish = await driver.run(effects)
        run = execution.run
        run.attempts, run.fallback_index = machine.openings, machine.fallback_index
        run.model = self._endpoints[machine.fallback_index].name
        run.finish_reason, run.finish_reason_raw = machine.finish_reason, machine.finish_reason_raw
        if machine.usage is not None:
            execution.add_usage(machine.usage.input_tokens, machine.usage.output_tokens)
        return finish

    def _open(self, opening: Open) -> tuple[str, ModelStream]:
        endpoint = self._endpoints[opening.fallback_index]
        provider = self._outside.providers[endpoint.provider]
        prompt = build_prompt(
            shown_history(self._branch, self._params),
            self._params,
            self._askings[opening.fallback_index],
            system=self._branch.system,
            provided=self._provided,
        )
        continuation = self._lifecycle.options.continuation
        asked = Opening(
            endpoint,
            prompt,
            attempt=opening.attempt,
            continue_from=opening.continue_from,
            continue_prompt=None if continuation is None else continuation.prompt,
        )
        return provider.adapter_id, provider.open(asked)

    # The answer: read, judged and stored together with COMPLETE, before any tool may run from it.

    def _answered(self) -> None:
        self._reading = self._read()
        value = self._reading.value if self._reading is not None and self._reading.ok else None
        ids, params = self._outside.ids, self._params
        self._execution.log.write(*said(ids, self._branch.id, params, self._machine, value, self._provided))

    def _read(self) -> Reading | None:
        """Parse and validate what was asked for; None where the text itself is the result."""
        contract = self._answering.contract
        if contract is None or self._params.skip_validation:
            return None
        log, clock = self._execution.log, self._outside.clock
        reading = read_answer(log, self._machine, contract, clock, stream=0, validate=self._params.validate)
        if reading.ok or self._repairer is None:
            self._judge(reading)
        return reading

    def _judge(self, reading: Reading) -> None:
        """The caller's policy is applied to this reading, and to no later one."""
        failure = reading.failure
        kind = None if failure is None else failure.kind
        wrong = [] if failure is None else faults_of(reading)
        self._execution.log.event(ResultValidated(reading.ok, kind or "schema", wrong))
        told = {"ok": reading.ok, "kind": kind, "errors": wrong}
        self._execution.run.validation = dumps(told).decode()

    async def _mended(self, reading: Reading) -> Reading | None:
        """The answer after all repairs; None when the run was ended meanwhile."""
        contract = self._answering.contract
        if reading.ok or self._repairer is None or contract is None:
            return reading
        reading, stopped = await self._repairer.mend(
            self._execution,
            reading,
            contract,
            self._budget,
            deadline_ms=self._deadline_ms,
            validate=self._params.validate,
        )
        ended = None if stopped is None else stopped.error
        if stopped is not None and ended is not None and ended.code in _ENDS_THE_RUN:
            self._end_badly(stopped)
            return None
        self._judge(reading)
        return reading

    # The end.

    def _end_badly(self, finish: Finish) -> None:
        assert finish.error is not None
        self._execution.run.partial_text = storable(self._machine.text) or None
        status = "cancelled" if finish.aborted else "failed"
        self._execution.finish(status, error=finish.error.wire())

    async def _end_well(self) -> None:
        reading = self._reading
        if reading is not None:
            reading = await self._mended(reading)
            if reading is None:
                return
            if not reading.ok:
                self._end_mismatched(reading)
                return
        calls = self._requested(reading)
        if len(calls) > MAX_ACTIONS:
            message = f"the model asked for {len(calls)} tool calls, at most {MAX_ACTIONS} are carried out"
            self._execution.finish("failed", error=_error("TOO_MANY_ACTIONS", message, "model"))
            return
        value = None if reading is None else reading.value
        await self._act(_Answered(self._machine.text, value, reading is not None, calls), Earlier())

    async def _act(self, answered: _Answered, earlier: Earlier) -> None:
        """The tool calls that the answer asks for, and the result; the run may wait in between."""
        execution, asking = self._execution, self._answering
        calls = answered.calls
        batched = collapsed(calls) if self._params.dedupe_actions else one_by_one(calls)
        proposals = Proposals(
            batched.calls,
            self._tools,
            asking.offered,
            announced=self._is_native(),
            oversight=self._oversight,
            earlier=earlier,
        )
        try:
            with execution.within(self._left_s()):
                responses = await self._outside.acting.carry_out(
                    execution, proposals, self._batch_of(answered)
                )
        except ToolsFailed as failure:
            execution.finish("failed", error=failure.error())
        except CallsWait as wait:
            # The time for which it waits does not count; what it took before does.
            kept = {**answered.wire(), "left_s": self._left_s()}
            execution.wait(dumps(kept).decode(), wait.until)
        else:
            self._responses = batched.spread(responses)
            finish_acted(execution, dumps(self._result(answered, self._responses)).decode())

    def _end_mismatched(self, reading: Reading) -> None:
        """The answer is not what was asked for: the caller's policy decides, and no tool runs from it."""
        policy = self._params.handle_validation
        if policy == "raise":
            assert reading.failure is not None
            error = _error("RESULT_MISMATCH", reading.failure.message, "model")
            error["detail"] = {"code": reading.failure.code, "errors": faults_of(reading)}
            self._execution.run.partial_text = storable(self._machine.text) or None
            self._execution.finish("failed", error=error)
            return
        returned = reading.value if reading.parsed else storable(self._machine.text)
        self._execution.finish(
            "completed", result=dumps(None if policy == "return_none" else returned).decode()
        )

    def _left_s(self) -> float | None:
        """Seconds until the run's deadline; None without one."""
        if self._deadline_ms is None:
            return None
        return max(0.0, self._deadline_ms - self._outside.clock.mono_ms()) / 1000

    def _is_native(self) -> bool:
        return bool(self._answering.native_tools)

    def _batch_of(self, answered: _Answered) -> Batch:
        """How the calls are made: an answer may have them follow each other, and never the reverse."""
        contract, batch = self._answering.contract, self._params.batch
        if not answered.read or contract is None or not contract.wants_one_by_one(answered.value):
            return batch
        return replace(batch, strategy="sequential")

    def _requested(self, reading: Reading | None) -> list[ActionCall]:
        """The tool calls that the answer asks for; none unless actions are on."""
        if self._params.skip_validation or not self._params.actions:
            return []
        if self._is_native():
            return [
                proposed({"function": call.name, "arguments": call.arguments}, provider_call_id=call.id)
                for call in self._machine.tool_calls
            ]
        contract = self._answering.contract
        if contract is None or reading is None:
            return []
        return [proposed(request) for request in contract.action_requests(reading.value) or ()]

    def _result(self, answered: _Answered, responses: Sequence[Mapping[str, Any]]) -> Any:
        contract = self._answering.contract
        if answered.read and contract is not None:
            return contract.result(answered.value, responses)
        requests = [{"function": call.function, "arguments": call.raw_arguments} for call in answered.calls]
        return enrich(storable(answered.text), responses, action_requests=requests)


@dataclass(frozen=True, slots=True)
class _Answered:
    """What the action phase needs to know of the answer; a run that waits keeps it."""

    text: str
    value: Any
    read: bool
    """Whether the value was read from the text, and is what the result is made of."""
    calls: Sequence[ActionCall]

    def wire(self) -> dict[str, Any]:
        """As JSON has it."""
        calls = [[call.function, call.raw_arguments, call.provider_call_id] for call in self.calls]
        return {"text": storable(self.text), "value": self.value, "read": self.read, "calls": calls}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> _Answered:
        """What `wire` gave."""
        calls = [
            proposed({"function": function, "arguments": arguments}, provider_call_id=id)
            for function, arguments, id in stored["calls"]
        ]
        return cls(stored["text"], stored["value"], stored["read"], calls)


_ENDS_THE_RUN = frozenset({faults.ABORTED.code, faults.DEADLINE.code})
"""Codes of a repair's end that are the run's too; any other leaves the answer as it is."""


def _error(code: str, message: str, category: str) -> dict[str, Any]:
    return {"code": code, "message": message, "category": category, "retryable": False}
