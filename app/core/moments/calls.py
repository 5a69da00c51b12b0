"""The tool calls of a run as its log tells of them up to some event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from app.core.action.verdict import Cancelled, Lost, fault_of, status_of

REQUESTED: Final = "requested"
"""What a model's call is until something is done about it; it has no function call yet."""

_TOLD: Final = MappingProxyType({str(fault_of(end)): status_of(end).value for end in (Cancelled(), Lost())})
"""The ends that a TOOL_ERROR tells by its words."""

Meta = Mapping[str, Any]


@dataclass(slots=True)
class CallThen:
    """One call as it stood."""

    tool_call_id: str
    function: str | None = None
    arguments: Any = None
    """As they were asked for; None once a person has changed them, for the log does not say to what."""
    call_id: str | None = None
    """Known once something was done about it."""
    status: str = REQUESTED
    attempts: int = 0
    """How often the tool was begun."""
    output: Any = None
    error: str | None = None
    over: bool = False
    """Whether no attempt follows: the conversation has its response."""
    stream: int | None = None
    """The stream that asked for it, until something is done about it."""


class CallsThen:
    """All calls of a run, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._calls: list[CallThen] = []
        self._known: dict[str, CallThen] = {}
        """Those of which an id is known, by it."""
        self._waiting: dict[str, list[CallThen]] = {}
        """The others, by the model's id, which several may have."""

    def __iter__(self) -> Iterator[CallThen]:
        return iter(self._calls)

    @property
    def over(self) -> Collection[str]:
        """The ids of those that have their response."""
        return [call.call_id for call in self._calls if call.over and call.call_id is not None]

    def take(self, kind: str, meta: Meta, stream: int | None) -> None:
        """Apply one event; most types say nothing of calls."""
        if kind == "TOOL_REQUESTED":
            self._requested(meta, stream)
        elif kind == "STREAM_INIT":
            # What an answer had asked for that did not come whole is not carried out.
            self._forget(lambda call: call.stream is not None and call.stream == stream)
        elif (change := _CHANGES.get(kind)) is not None:
            change(self._found(meta), meta)

    def wait(self) -> None:
        """The run waits: for whatever has not ended."""
        for call in self._calls:
            if call.status == "processing":
                call.status = "pending"

    def _requested(self, meta: Meta, stream: int | None) -> None:
        # Outside of a stream it is the record of a call that is about to be carried out.
        status = REQUESTED if stream is not None else "processing"
        call = CallThen(meta["toolCallId"], meta["toolName"], meta["arguments"], status=status, stream=stream)
        self._calls.append(call)
        self._waiting.setdefault(call.tool_call_id, []).append(call)

    def _forget(self, unwanted: Callable[[CallThen], bool]) -> None:
        """Take calls away of which no id is known."""
        self._calls = [call for call in self._calls if not unwanted(call)]
        for waiting in self._waiting.values():
            waiting[:] = [call for call in waiting if not unwanted(call)]

    def _found(self, meta: Meta) -> CallThen:
        """The call that an event is about: by its own id, else the first with the model's."""
        call_id, tool_call_id = meta["callId"], meta["toolCallId"]
        if (call := self._known.get(call_id)) is None:
            waiting = self._waiting.get(tool_call_id, [])
            named = (each for each in waiting if each.function == meta.get("toolName", each.function))
            call = next(named, waiting[0] if waiting else None)
            if call is not None:
                waiting.remove(call)
            else:
                call = CallThen(tool_call_id, meta.get("toolName"))
                self._calls.append(call)
            self._known[call_id] = call
        call.call_id, call.stream = call_id, None
        return call


def _began(call: CallThen, meta: Meta) -> None:
    call.status, call.output, call.error = "processing", None, None
    call.attempts += 1


def _succeeded(call: CallThen, meta: Meta) -> None:
    call.status, call.output, call.error = "completed", meta["result"], None


def _failed(call: CallThen, meta: Meta) -> None:
    call.error = meta["error"]
    call.status = _TOLD.get(meta["error"], "failed")


def _completed(call: CallThen, meta: Meta) -> None:
    call.over = True


def _skipped(call: CallThen, meta: Meta) -> None:
    call.status, call.error, call.over = "skipped", meta["reason"], True


def _asked(call: CallThen, meta: Meta) -> None:
    call.status = "pending"


def _decided(call: CallThen, meta: Meta) -> None:
    match meta["decision"]:
        case "approve":
            call.status = "processing"
        case "edit":
            call.status, call.arguments = "processing", None
        case _:
            _skipped(call, meta)


_CHANGES: Final[Mapping[str, Callable[[CallThen, Meta], None]]] = {
    "TOOL_START": _began,
    "TOOL_RESULT": _succeeded,
    "TOOL_ERROR": _failed,
    "TOOL_COMPLETED": _completed,
    "GATE_DENIED": _skipped,
    "APPROVAL_REQUESTED": _asked,
    "APPROVAL_DECIDED": _decided,
}
