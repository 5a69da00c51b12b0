"""Turn what was sent as a tool call into one `ActionCall` that every later phase sees alike."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.core.errors import FieldError, Invalid
from app.core.json_schema import JsonSchema, SchemaError, compiled_once
from app.core.json_text import canonical, pointer

TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
INVALID_ARGUMENTS = "INVALID_ARGUMENTS"

ACCEPTED = "an action request is an object with `function`, a name, and `arguments`"


@dataclass(frozen=True, slots=True)
class CallError:
    """Why a call cannot run; becomes the call's error, never an exception."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One tool call as it was asked for."""

    function: str
    raw_arguments: Any
    """What was sent, any JSON value."""
    arguments: dict[str, Any] | None
    """What gate, hooks and tool see; None when the call cannot run."""
    error: CallError | None = None
    provider_call_id: str | None = None
    """The model's id of the call; not unique."""

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the arguments that would run, or of the raw ones when none would."""
        return digest(self.raw_arguments if self.arguments is None else self.arguments)

    def refused(self, error: CallError) -> ActionCall:
        """The same call, which now cannot run."""
        return replace(self, arguments=None, error=error)


def digest(value: Any) -> str:
    """SHA-256, in hex, of a JSON value; the order of keys does not matter, and integers are exact."""
    return hashlib.sha256(canonical(value)).hexdigest()


def accept(requests: Any, *, at: str = "/requests") -> list[ActionCall]:
    """The calls of a request body: one envelope or a list of them.

    Raises `Invalid` naming every entry that is no envelope. Arguments that are no object make a call whose
    `error` says so.
    """
    single = isinstance(requests, Mapping)
    if not single and not isinstance(requests, list | tuple):
        raise Invalid(ACCEPTED, errors=[FieldError(at, f"expected a list; {ACCEPTED}")])
    entries: Sequence[Any] = [requests] if single else requests
    faults: list[FieldError] = []
    calls: list[ActionCall] = []
    for index, entry in enumerate(entries):
        where = at if single else at + pointer(index)
        fault = _envelope_fault(entry, where)
        if fault is None:
            calls.append(_call(entry["function"], entry["arguments"]))
        else:
            faults.append(fault)
    if faults:
        raise Invalid(ACCEPTED, errors=faults)
    return calls


def proposed(request: Any, *, provider_call_id: str | None = None) -> ActionCall:
    """A call that a model asked for: what is wrong with it becomes its error, for the model to see.

    Absent arguments mean `{}`.
    """
    if not isinstance(request, Mapping):
        return _nameless(request, provider_call_id)
    function, arguments = request.get("function"), request.get("arguments")
    if not isinstance(function, str) or not function:
        return _nameless(arguments, provider_call_id)
    return replace(_call(function, arguments), provider_call_id=provider_call_id)


def find_tool(call: ActionCall, offered: Collection[str]) -> ActionCall:
    """The call, refused with TOOL_NOT_FOUND when its tool is not offered."""
    if call.error is not None or call.function in offered:
        return call
    return call.refused(CallError(TOOL_NOT_FOUND, f"no tool {call.function[:100]!r} is offered here"))


def check_arguments(call: ActionCall, parameters: Mapping[str, Any], *, strict: bool = False) -> ActionCall:
    """The call, refused with INVALID_ARGUMENTS when they do not fit the tool's schema.

    Strict means exactly the keys of the schema: none missing, none more. The schema's defaults are not filled
    in: a tool has its own.
    """
    if call.arguments is None:
        return call
    faults = argument_faults(call.arguments, parameters, strict=strict)
    return call.refused(CallError(INVALID_ARGUMENTS, _told(faults))) if faults else call


def argument_faults(
    arguments: Mapping[str, Any], parameters: Mapping[str, Any], *, strict: bool = False
) -> list[SchemaError]:
    """In what the arguments do not fit; empty when they do."""
    faults: list[SchemaError] = []
    if strict:
        expected = parameters.get("properties") or {}
        faults += [SchemaError("", f"{key!r} is missing") for key in expected if key not in arguments]
        faults += [
            SchemaError(pointer(key), "is not one of the tool's arguments")
            for key in arguments
            if key not in expected
        ]
    return faults or _schema_of(parameters).check(arguments)


_ANY_OBJECT: Final = {"type": "object"}


def _schema_of(parameters: Mapping[str, Any]) -> JsonSchema:
    return compiled_once(parameters or _ANY_OBJECT, at="/parameters")


def _told(faults: Sequence[SchemaError]) -> str:
    return "; ".join(f"{fault.pointer or '(arguments)'}: {fault.message}" for fault in faults)


def _call(function: str, arguments: Any) -> ActionCall:
    # A JSON text in a string is not parsed: nobody would know which of the two readings was meant.
    if arguments is None or arguments == "":
        return ActionCall(function, arguments, {})
    if isinstance(arguments, dict):
        return ActionCall(function, arguments, arguments)
    message = f"arguments must be an object, not {_kind(arguments)}"
    return ActionCall(function, arguments, None, CallError(INVALID_ARGUMENTS, message))


def _nameless(arguments: Any, provider_call_id: str | None) -> ActionCall:
    error = CallError(TOOL_NOT_FOUND, "the call names no function")
    return ActionCall("", arguments, None, error, provider_call_id)


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case _:
            return type(value).__name__


def _envelope_fault(entry: Any, where: str) -> FieldError | None:
    if not isinstance(entry, Mapping):
        return FieldError(where, ACCEPTED)
    for key in ("function", "arguments"):
        if key not in entry:
            return FieldError(where + pointer(key), f"{key} is missing; {ACCEPTED}", "missing")
    if not isinstance(entry["function"], str) or not entry["function"]:
        return FieldError(where + "/function", "the name of a tool is a string that is not empty")
    unknown = [key for key in entry if key not in ("function", "arguments")]
    if unknown:
        return FieldError(where + pointer(unknown[0]), "unknown field", "unknown_field")
    return None
