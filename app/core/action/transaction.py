"""One call from its proposal to its record: a pure machine that a service drives phase by phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.core.action.normalize import ActionCall
from app.core.action.table import TRANSITIONS, Escalated, HandedOver, IllegalStep, Outcome, Passed, Phase
from app.core.action.verdict import (
    DENIED_BY_GATE,
    GATE_DENIED,
    MAX_MESSAGE,
    CallStatus,
    Cancelled,
    Denied,
    Failed,
    Lost,
    Succeeded,
    Verdict,
    fault_of,
    status_of,
)
from app.core.events.base import Event
from app.core.events.tool import ToolCompleted, ToolError, ToolRequested, ToolResult, ToolStart
from app.core.json_text import storable
from app.core.messages import ActionRequestContent, ActionResponseContent


class ActionTransaction:
    """The state of one call.

    Perform `phase`, then `advance` with how that went, until `phase` is DONE. A call that cannot run (its
    `error` is set) begins at RECORDING.
    """

    def __init__(self, call: ActionCall, call_id: UUID, *, announced: bool = False, attempt: int = 1) -> None:
        """`announced`: the stream has already emitted TOOL_REQUESTED for this call."""
        self.call = call
        self.call_id = call_id
        self._told_id = str(call_id)
        self.attempt = attempt
        """Which attempt at the call this is, from 1."""
        self.phase = Phase.AUTHORIZING
        self.verdict: Verdict | None = None
        """How the call ended, from the moment that is certain."""
        self.intent_recorded = False
        """Whether the request message and the function call are already committed."""
        self.started = False
        """Whether the tool may have begun to run."""
        self._announced = announced
        if call.error is not None:
            self.phase = Phase.RECORDING
            self.verdict = Failed(call.error.type, call.error.message)

    @classmethod
    def interrupted(cls, call: ActionCall, call_id: UUID) -> ActionTransaction:
        """A call found in `processing` after its process was lost; only its end is left to be recorded."""
        made = cls(call, call_id, announced=True)
        made.phase, made.verdict = Phase.RECORDING, Lost()
        made.intent_recorded = made.started = True
        return made

    @classmethod
    def waiting(cls, call: ActionCall, call_id: UUID) -> ActionTransaction:
        """A call that was left waiting for a person."""
        made = cls(call, call_id, announced=True)
        made.phase = Phase.WAITING
        return made

    @classmethod
    def handed_over(cls, call: ActionCall, call_id: UUID, attempt: int = 1) -> ActionTransaction:
        """A call whose result a client is to bring."""
        made = cls(call, call_id, announced=True, attempt=attempt)
        made.phase = Phase.HANDED_OVER
        made.intent_recorded = made.started = True
        return made

    @classmethod
    def left_off(cls, call: ActionCall, call_id: UUID, failure: Failed) -> ActionTransaction:
        """A call whose last attempt failed, and whose next one was never begun."""
        made = cls(call, call_id, announced=True)
        made.phase, made.verdict = Phase.TELLING, failure
        made.intent_recorded = made.started = True
        return made

    def again(self) -> ActionTransaction:
        """The next attempt at a call that failed; it was authorized before."""
        made = ActionTransaction(self.call, self.call_id, announced=True, attempt=self.attempt + 1)
        made.phase = Phase.RECORDING_INTENT
        return made

    def refuse(self, type: str, message: str) -> None:
        """The call cannot run after all; only before the intent is recorded."""
        if self.intent_recorded or self.verdict is not None:
            raise IllegalStep(f"too late to refuse the call in phase {self.phase}")
        self.verdict, self.phase = _storable(Failed(type, message)), Phase.RECORDING

    def cancel(self) -> None:
        """The call is not wanted any more, wherever it stands; what it did stays done."""
        if self.verdict is None:
            self.verdict = Cancelled()
        self.phase = Phase.RECORDING

    def edited(self, call: ActionCall) -> None:
        """Other arguments are to run than those that were asked for; only before the intent is recorded."""
        if self.intent_recorded or self.verdict is not None:
            raise IllegalStep(f"arguments are settled in phase {self.phase}")
        self.call = call

    @property
    def status(self) -> CallStatus:
        """Where the function call stands."""
        if self.verdict is not None:
            return status_of(self.verdict)
        waits = self.phase in (Phase.WAITING, Phase.HANDED_OVER)
        return CallStatus.PENDING if waits else CallStatus.PROCESSING

    def advance(self, outcome: Outcome) -> None:
        """Take the outcome of the present phase. Raises `IllegalStep` for one that it cannot have."""
        following = TRANSITIONS.get((self.phase, type(outcome)))
        if following is None:
            raise IllegalStep(f"{type(outcome).__name__} in phase {self.phase}")
        # What a tool did stays done: a verdict once reached is not undone by a cancellation after it.
        if self.verdict is None and not isinstance(outcome, Passed | Escalated | HandedOver):
            self.verdict = _storable(outcome)
        self.intent_recorded = self.intent_recorded or following is Phase.PRE_HOOKS
        self.started = self.started or following is Phase.INVOKING
        self.phase = following

    # The records.

    @property
    def tool_call_id(self) -> str:
        """What all TOOL_* events of the call carry: the provider's id for a native call, else our own."""
        return self.call.provider_call_id or self._told_id

    def requested(self) -> list[Event]:
        """The event of the proposal, unless the stream has emitted it; belongs to the first record."""
        if self._announced:
            return []
        return [ToolRequested(self.call.function, self.tool_call_id, self.call.arguments or {})]

    def start(self, origin: Mapping[str, str] | None = None) -> Event:
        """The event to emit before INVOKING is performed; `origin` is where the tool comes from."""
        told = None if origin is None else dict(origin)
        return ToolStart(self.tool_call_id, self.call.function, self._told_id, told)

    def end(self, duration_ms: int = 0, *, last: bool = True) -> list[Event]:
        """The events of the end; a denied call has none here, its GATE_DENIED is the gate's.

        `last` is false for an attempt that is followed by another: the call itself is not over.
        """
        verdict, call_id = self._ended(), self._told_id
        if isinstance(verdict, Denied):
            return []
        if isinstance(verdict, Succeeded):
            result = ToolResult(self.tool_call_id, verdict.value, duration_ms, call_id)
            return [result, ToolCompleted(self.tool_call_id, "success", call_id)]
        error = ToolError(self.tool_call_id, str(fault_of(verdict)), duration_ms, call_id)
        return [error, ToolCompleted(self.tool_call_id, "error", call_id)] if last else [error]

    def closing(self) -> Event:
        """The event of a call whose last attempt has ended, when no other follows after all."""
        return ToolCompleted(self.tool_call_id, "error", self._told_id)

    def execution(self, duration_ms: float = 0) -> dict[str, Any]:
        """The function call's `execution` on the wire; its duration is in seconds."""
        verdict = self._ended()
        fault = fault_of(verdict)
        out = {
            "status": self.status.value,
            "duration": duration_ms / 1000,
            "response": verdict.value if isinstance(verdict, Succeeded) else None,
            "error": None if fault is None else {"error": fault.type, "message": fault.message},
            "retryable": None if fault is None else fault.retryable,
        }
        return self._flagged(out)

    def request(self) -> ActionRequestContent:
        """Content of the request message."""
        return ActionRequestContent(
            self.call.function, self._shown_arguments(), provider_call_id=self.call.provider_call_id
        )

    def response(self, action_request_id: UUID | str) -> ActionResponseContent:
        """Content of the response message; every call that ended has one."""
        output, error = self._output()
        verdict = self.verdict
        return ActionResponseContent(
            function=self.call.function,
            arguments=self._shown_arguments(),
            output=output,
            action_request_id=str(action_request_id),
            error=error,
            output_truncated=isinstance(verdict, Succeeded) and verdict.truncated,
        )

    def result(self) -> dict[str, Any]:
        """What the caller of act, and the reader of `action_responses`, is given."""
        output, error = self._output()
        out = {
            "function": self.call.function,
            "arguments": self._shown_arguments(),
            "output": output,
            "error": error,
            "call_id": self._told_id,
            "status": self.status.value,
        }
        return self._flagged(out)

    def _ended(self) -> Verdict:
        if self.verdict is None:
            raise IllegalStep(f"no end to record in phase {self.phase}")
        return self.verdict

    def _shown_arguments(self) -> Any:
        call = self.call
        return call.raw_arguments if call.arguments is None else call.arguments

    def _output(self) -> tuple[Any, str | None]:
        """(output, error) of messages and results."""
        verdict = self._ended()
        if isinstance(verdict, Succeeded):
            return verdict.value, None
        function = self.call.function
        if isinstance(verdict, Denied) and verdict.type == GATE_DENIED:
            return {"error": DENIED_BY_GATE, "function": function}, DENIED_BY_GATE
        error = str(fault_of(verdict))
        return {"error": error, "function": function, "arguments": self._shown_arguments()}, error

    def _flagged(self, out: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self.verdict, Succeeded) and self.verdict.truncated:
            out["output_truncated"] = True
        return out


def _storable(outcome: Verdict) -> Verdict:
    """A tool's own words may hold what cannot be stored, or have no end."""
    match outcome:
        case Failed(type, message, retryable):
            return Failed(storable(type)[:200], storable(message[:MAX_MESSAGE]), retryable)
        case Denied(reason, type):
            return Denied(storable(reason[:MAX_MESSAGE]), type)
        case _:
            return outcome
