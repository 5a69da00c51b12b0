"""How a model is asked and its answer read: what every kind of run that asks models shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from app.core.json_text import dumps, storable
from app.core.lifecycle.machine import StreamMachine
from app.core.messages import AssistantContent, InstructionContent, ModelToolCall
from app.core.opaque import Opaque
from app.core.operate.asking import Asking, ask_for
from app.core.operate.history import History
from app.core.operate.middle import choose_middle
from app.core.operate.params import OperateParams
from app.core.operate.progression import progression_of
from app.core.operate.read_output import Reading, check_output, parse_output, reading_events
from app.core.operate.schema import AnswerContract
from app.core.prompt import ToolSchema
from app.ports.ambient import Clock, IdSource
from app.ports.provider import ModelEndpoint, Provider
from app.ports.storage import BranchState, NewMessage
from app.services.run_log import RunLog


def asking_of(
    provider: Provider, endpoint: ModelEndpoint, params: OperateParams, tools: Sequence[ToolSchema] = ()
) -> Asking:
    """How this endpoint is asked for what the parameters want."""
    takes = provider.capabilities(endpoint)
    asking = ask_for(params, tools, takes_tools=takes.tools, takes_schema=takes.response_schema)
    if takes.collects or params.middle is not None:
        middle = choose_middle(params.middle, model=endpoint.name, collects=takes.collects)
        asking = replace(asking, middle=middle)
    if asking.native_schema is None or takes.project_schema is None:
        return asking
    fitted = takes.project_schema(asking.native_schema)
    shown = asking.native_schema if fitted is None else None
    return replace(asking, native_schema=fitted, shown_schema=shown)


def shown_history(branch: BranchState, params: OperateParams) -> History:
    """The part of the conversation that the parameters have a model shown. Raises `Invalid`."""
    if params.clear_messages:
        return History()
    if params.progression is None:
        return branch.history
    return branch.history.only(check_progression(branch, params))


def check_progression(branch: BranchState, params: OperateParams) -> Sequence[UUID]:
    """The messages that a progression names; none where there is none. Raises `Invalid`."""
    if params.progression is None:
        return ()
    known = [message.id for message in branch.history.said]
    return progression_of(params.progression, known, branch.history.pairs())


def said(
    ids: IdSource,
    branch_id: UUID | None,
    params: OperateParams,
    machine: StreamMachine,
    by: ModelEndpoint,
    value: Any,
    provided: Mapping[str, Any],
) -> tuple[NewMessage, NewMessage]:
    """The instruction and the answer of `by` for the conversation; `value` is what it was read as."""
    instruction = InstructionContent(
        params.instruction,
        params.guidance,
        params.context,
        params.images,
        params.response_format,
        params.image_detail,
        params.clear_messages,
        provided,
    )
    answer = AssistantContent(
        text=storable(machine.text),
        value=value,
        reasoning=storable(machine.reasoning) or None,
        tool_calls=[ModelToolCall(c.id, c.name, c.arguments) for c in machine.tool_calls],
        opaque=Opaque(by.provider, by.model, machine.opaque) if machine.opaque else None,
    )
    speaker = params.sender or "user"
    listener = params.recipient or str(branch_id)
    return (
        NewMessage(ids.new(), "instruction", dumps(instruction.wire()).decode(), speaker, listener),
        NewMessage(ids.new(), "assistant_response", dumps(answer.wire()).decode(), "assistant", speaker),
    )


def read_answer(
    run_log: RunLog,
    machine: StreamMachine,
    contract: AnswerContract,
    clock: Clock,
    *,
    stream: int,
    validate: bool = True,
    told: bool = False,
) -> Reading:
    """Parse and check the text of a stream that has its answer, and append the events of it.

    `told`: the log has them already.
    """
    began = clock.mono_ms()
    reading = parse_output(machine.text, contract, finish_reason=machine.finish_reason)
    parsed = clock.mono_ms()
    if validate:
        reading = check_output(reading, contract)
    if told:
        return reading
    timing = {"parse_ms": parsed - began, "check_ms": clock.mono_ms() - parsed}
    for event in reading_events(reading, schema_name=contract.name, **timing):
        run_log.event(event, stream, machine.attempt, machine.fallback_index)
    return reading


def faults_of(reading: Reading) -> list[str]:
    """What is wrong with an answer that cannot be used, one line for each fault."""
    assert reading.failure is not None
    if reading.failure.errors:
        return [f"{fault.pointer or '(answer)'}: {fault.message}" for fault in reading.failure.errors]
    return [f"{reading.failure.code}: {reading.failure.message}"]
