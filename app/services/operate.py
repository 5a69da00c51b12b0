"""Runs of operate: params, schema, one model stream, validation, actions, enrichment, in that order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import UUID

from pydantic_core import from_json

from app.core.action.normalize import ActionCall, proposed
from app.core.errors import FieldError, UnknownModel
from app.core.events.base import Event
from app.core.events.run import ResultValidated
from app.core.json_text import dumps, storable
from app.core.lifecycle.effects import Effect, Finish, Open
from app.core.lifecycle.inputs import Begin
from app.core.lifecycle.machine import StreamMachine
from app.core.messages import AssistantContent, InstructionContent, Message, ModelToolCall, read_content
from app.core.operate.asking import Asking, ask_for
from app.core.operate.lifecycle import Lifecycle, merge_lifecycle
from app.core.operate.params import OperateParams, offered_tools, resolve
from app.core.operate.prompt import build_prompt
from app.core.operate.read_output import Reading, check_output, parse_output, reading_events
from app.core.operate.request import MAX_ACTIONS, OperateRequest
from app.core.operate.schema import enrich
from app.core.prompt import ToolSchema
from app.ports.ambient import Clock, IdSource
from app.ports.provider import ModelEndpoint, Opening, Provider
from app.ports.storage import BranchState, NewMessage, RunRecord
from app.ports.tool import ToolCatalog, ToolSpec
from app.services.act import Acting, Proposals, ToolsFailed
from app.services.act_runs import finish_acted, settings_of
from app.services.execution import Execution
from app.services.plan import Plan
from app.services.stream import ModelStream, StreamDriver


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


@dataclass(frozen=True, slots=True)
class Outside:
    """What runs of operate need from the outside."""

    models: ModelCatalog
    providers: Mapping[str, Provider]
    tools: ToolCatalog
    acting: Acting
    clock: Clock
    ids: IdSource
    draw: Callable[[], float]
    """Random numbers from 0 up to 1."""
    lifecycle: Mapping[str, Any] | None = None
    """Lifecycle options of the settings."""


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
        primary = await self._model(run.project_id, params.chat_model, "/chat_model")
        lifecycle = merge_lifecycle(
            request.lifecycle.level() if request.lifecycle else None,
            branch.lifecycle,
            primary.lifecycle,
            branch.project_lifecycle,
            outside.lifecycle,
        )
        endpoints = [primary.endpoint]
        for index, name in enumerate(lifecycle.fallbacks):
            fallback = await self._model(run.project_id, name, f"/lifecycle/fallbacks/{index}")
            endpoints.append(fallback.endpoint)
        tools = await outside.tools.tools(run.project_id)
        offered = offered_tools(params.tools, tools, asked=isinstance(request.tools, list))
        run.model = params.chat_model
        if lifecycle.context:
            run.context = dumps(lifecycle.context).decode()
        operation = _Operation(outside, branch, params, lifecycle, endpoints, tools, offered)
        return operation.plan()

    async def _model(self, project_id: UUID, name: str, pointer: str) -> ResolvedModel:
        try:
            return await self._outside.models.resolve(project_id, name)
        except UnknownModel as unknown:
            where = FieldError(pointer, f"no model {name!r} is registered", "unknown_model")
            raise UnknownModel(unknown.detail, errors=[where]) from None


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
    ) -> None:
        self._outside = outside
        self._branch = branch
        self._params = params
        self._endpoints = endpoints
        self._tools = tools
        shown = [ToolSchema(name, tools[name].description, tools[name].parameters) for name in offered]
        self._askings = [self._asking(endpoint, shown) for endpoint in endpoints]
        self._machine = StreamMachine(
            lifecycle.options,
            models=len(endpoints),
            draw=outside.draw,
            calls_left=lifecycle.options.max_model_calls,
        )
        self._execution: Execution
        self._reading: Reading | None = None

    def _asking(self, endpoint: ModelEndpoint, tools: Sequence[ToolSchema]) -> Asking:
        takes = self._outside.providers[endpoint.provider].capabilities(endpoint)
        asking = ask_for(self._params, tools, takes_tools=takes.tools, takes_schema=takes.response_schema)
        if asking.native_schema is None or takes.project_schema is None:
            return asking
        fitted = takes.project_schema(asking.native_schema)
        shown = asking.native_schema if fitted is None else None
        return replace(asking, native_schema=fitted, shown_schema=shown)

    @property
    def _answering(self) -> Asking:
        """How the model that answers was asked."""
        return self._askings[self._machine.fallback_index]

    def plan(self) -> Plan:
        """The first events, and the rest of the way."""
        effects = self._machine.feed(Begin(), self._outside.clock.mono_ms())
        events = [effect for effect in effects if isinstance(effect, Event)]
        rest = [effect for effect in effects if not isinstance(effect, Event)]

        async def perform(execution: Execution) -> None:
            self._execution = execution
            finish = await self._stream(rest)
            if finish.error is not None:
                self._end_badly(finish)
            else:
                await self._end_well()

        return Plan(perform, events)

    # The model stream.

    async def _stream(self, effects: Sequence[Effect]) -> Finish:
        execution, machine = self._execution, self._machine
        execution.streams += 1
        driver = StreamDriver(machine, execution, 0, self._open, self._outside.clock, self._answered)
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
            self._history(),
            self._params,
            self._askings[opening.fallback_index],
            system=self._branch.system,
        )
        asked = Opening(endpoint, prompt, attempt=opening.attempt, continue_from=opening.continue_from)
        return provider.adapter_id, provider.open(asked)

    def _history(self) -> list[Message]:
        return [Message(m.id, read_content(m.kind, from_json(m.content))) for m in self._branch.messages]

    # The answer: read, judged and stored together with COMPLETE, before any tool may run from it.

    def _answered(self) -> None:
        self._reading = self._read()
        machine, params, ids = self._machine, self._params, self._outside.ids
        instruction = InstructionContent(
            params.instruction, params.guidance, params.context, params.images, params.response_format
        )
        answer = AssistantContent(
            text=storable(machine.text),
            value=self._reading.value if self._reading is not None and self._reading.ok else None,
            reasoning=storable(machine.reasoning) or None,
            tool_calls=[ModelToolCall(c.id, c.name, c.arguments) for c in machine.tool_calls],
        )
        branch = str(self._branch.id)
        self._execution.log.write(
            NewMessage(
                ids.new(), "instruction", dumps(instruction.wire()).decode(), sender="user", recipient=branch
            ),
            NewMessage(ids.new(), "assistant_response", dumps(answer.wire()).decode(), "assistant", "user"),
        )

    def _read(self) -> Reading | None:
        """Parse and validate what was asked for; None where the text itself is the result."""
        contract = self._answering.contract
        if contract is None or self._params.skip_validation:
            return None
        log, clock = self._execution.log, self._outside.clock
        began = clock.mono_ms()
        reading = parse_output(self._machine.text, contract, finish_reason=self._machine.finish_reason)
        parsed = clock.mono_ms()
        if self._params.validate:
            reading = check_output(reading, contract)
        timing = {"parse_ms": parsed - began, "check_ms": clock.mono_ms() - parsed}
        for event in reading_events(reading, schema_name=contract.name, **timing):
            log.event(event, 0, self._machine.attempt, self._machine.fallback_index)
        failure = reading.failure
        kind = None if failure is None else failure.kind
        faults = [] if failure is None else _faults(reading)
        log.event(ResultValidated(reading.ok, kind or "schema", faults))
        told = {"ok": reading.ok, "kind": kind, "errors": faults}
        self._execution.run.validation = dumps(told).decode()
        return reading

    # The end.

    def _end_badly(self, finish: Finish) -> None:
        assert finish.error is not None
        self._execution.run.partial_text = storable(self._machine.text) or None
        status = "cancelled" if finish.aborted else "failed"
        self._execution.finish(status, error=finish.error.wire())

    async def _end_well(self) -> None:
        reading = self._reading
        if reading is not None and not reading.ok:
            self._end_mismatched(reading)
            return
        calls = self._requested(reading)
        if len(calls) > MAX_ACTIONS:
            message = f"the model asked for {len(calls)} tool calls, at most {MAX_ACTIONS} are carried out"
            self._execution.finish("failed", error=_error("TOO_MANY_ACTIONS", message, "model"))
            return
        try:
            responses = await self._outside.acting.carry_out(
                self._execution,
                Proposals(calls, self._tools, self._answering.offered, announced=self._is_native()),
                self._params.batch,
            )
        except ToolsFailed as failure:
            self._execution.finish("failed", error=failure.error())
            return
        finish_acted(self._execution, dumps(self._result(reading, calls, responses)).decode())

    def _end_mismatched(self, reading: Reading) -> None:
        """The answer is not what was asked for: the caller's policy decides, and no tool runs from it."""
        policy = self._params.handle_validation
        if policy == "raise":
            assert reading.failure is not None
            error = _error("RESULT_MISMATCH", reading.failure.message, "model")
            error["detail"] = {"code": reading.failure.code, "errors": _faults(reading)}
            self._execution.run.partial_text = storable(self._machine.text) or None
            self._execution.finish("failed", error=error)
            return
        returned = reading.value if reading.parsed else storable(self._machine.text)
        self._execution.finish(
            "completed", result=dumps(None if policy == "return_none" else returned).decode()
        )

    def _is_native(self) -> bool:
        return bool(self._answering.native_tools)

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

    def _result(
        self, reading: Reading | None, calls: Sequence[ActionCall], responses: Sequence[Mapping[str, Any]]
    ) -> Any:
        contract = self._answering.contract
        if reading is not None and contract is not None:
            return contract.result(reading.value, responses)
        requests = [{"function": call.function, "arguments": call.raw_arguments} for call in calls]
        return enrich(storable(self._machine.text), responses, action_requests=requests)


def _faults(reading: Reading) -> list[str]:
    assert reading.failure is not None
    if reading.failure.errors:
        return [f"{fault.pointer or '(answer)'}: {fault.message}" for fault in reading.failure.errors]
    return [f"{reading.failure.code}: {reading.failure.message}"]


def _error(code: str, message: str, category: str) -> dict[str, Any]:
    return {"code": code, "message": message, "category": category, "retryable": False}
