"""How a model is asked and its answer read: what every kind of run that asks models shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.lifecycle.machine import StreamMachine
from app.core.operate.asking import Asking, ask_for
from app.core.operate.params import OperateParams
from app.core.operate.read_output import Reading, check_output, parse_output, reading_events
from app.core.operate.schema import AnswerContract
from app.core.prompt import ToolSchema
from app.ports.ambient import Clock
from app.ports.provider import ModelEndpoint, Provider
from app.services.recorder import RunLog


def asking_of(
    provider: Provider, endpoint: ModelEndpoint, params: OperateParams, tools: Sequence[ToolSchema] = ()
) -> Asking:
    """How this endpoint is asked for what the parameters want."""
    takes = provider.capabilities(endpoint)
    asking = ask_for(params, tools, takes_tools=takes.tools, takes_schema=takes.response_schema)
    if asking.native_schema is None or takes.project_schema is None:
        return asking
    fitted = takes.project_schema(asking.native_schema)
    shown = asking.native_schema if fitted is None else None
    return replace(asking, native_schema=fitted, shown_schema=shown)


def read_answer(
    run_log: RunLog,
    machine: StreamMachine,
    contract: AnswerContract,
    clock: Clock,
    *,
    stream: int,
    validate: bool = True,
) -> Reading:
    """Parse and check the text of a stream that has its answer, and append the events of it."""
    began = clock.mono_ms()
    reading = parse_output(machine.text, contract, finish_reason=machine.finish_reason)
    parsed = clock.mono_ms()
    if validate:
        reading = check_output(reading, contract)
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
