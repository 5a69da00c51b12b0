"""The lines of an export: one JSON object each, told apart by `object`.

A line says nothing of what it belongs to: messages and runs belong to the branch line before them, everything
else to the run line before it. So a line cannot name what is somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal
from uuid import UUID

import orjson
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from app.core.events import event_types
from app.core.json_text import dumps
from app.core.record import MAX_BLOCK, Entry, EventEntry, TokenBlock, type_of

FORMAT: Final = 1
"""Grows when an older version could not read what is written."""


def _is_text(value: Any) -> Any:
    if not isinstance(value, str):  # else numbers would be taken for seconds since the epoch
        raise ValueError("a time is a text as RFC 3339 has it")
    return value


def _our_times(moment: datetime) -> datetime:
    if not 1970 <= moment.year <= 9998:
        raise ValueError("the year has to be one from 1970 to 9998")
    return moment


Id = Annotated[UUID, Field(strict=False)]
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_is_text), AfterValidator(_our_times)]
Small = Annotated[int, Field(ge=0, le=2**15 - 1)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Ms = Annotated[int, Field(ge=0, le=253_402_300_799_999)]
MOST_GROWN: Final = 500_000_000
"""For numbers that grow on after an import, and must not come to the end of their columns."""
Object = dict[str, Any]
Ended = Literal["completed", "failed", "cancelled", "expired"]
"""Only what is over can be carried."""


class Line(BaseModel):
    """One line. Where it is a row, its members have the names of the row's columns."""

    model_config = ConfigDict(extra="forbid", strict=True)

    table: ClassVar[str | None] = None
    """The table that it is a row of."""
    json_columns: ClassVar[frozenset[str]] = frozenset()
    """Members whose columns hold JSON."""
    json_never_null: ClassVar[frozenset[str]] = frozenset()
    """Those of them that are JSON's null, and not nothing, where there is no value."""

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The columns that it tells, in order."""
        return tuple(name for name in cls.model_fields if name != "object")


class HeaderLine(Line):
    """What the file is; the first line."""

    object: Literal["export"]
    format: Literal[1]
    version: str
    of: Literal["branch", "project"]
    id: Id
    exported_at: Moment


class BranchLine(Line):
    """A branch and its settings; begins a section."""

    table = "branches"
    json_columns = frozenset({"tools", "lifecycle", "gate", "permissions", "hooks", "metadata"})
    json_never_null = frozenset({"tools", "metadata"})

    object: Literal["branch"]
    id: Id
    name: str | None
    system: str | None
    chat_model: str | None
    parse_model: str | None
    tools: bool | list[str]
    lifecycle: Object | None
    gate: Object | None
    permissions: Object | None
    hooks: list[Object] | None
    metadata: Object
    version: Annotated[int, Field(ge=1, le=MOST_GROWN)]
    next_position: Annotated[int, Field(ge=0, le=MOST_GROWN)]
    parent_id: Id | None
    forked_at: Id | None
    forked_run_id: Id | None
    forked_seq: Number | None
    legal_hold: bool
    created_at: Moment
    updated_at: Moment


class MessageLine(Line):
    """A message of the branch, in the order of the conversation."""

    table = "messages"
    json_columns = json_never_null = frozenset({"content"})

    object: Literal["message"]
    id: Id
    position: Annotated[int, Field(ge=-1, le=MOST_GROWN)]
    kind: Literal["system", "instruction", "assistant_response", "action_request", "action_response"]
    sender: str | None
    recipient: str | None
    content: Object
    run_id: Id | None
    action_request_id: Id | None
    superseded: bool
    created_at: Moment


class RunLine(Line):
    """A run that has ended; of the branch, or of none, and then a section of its own."""

    table = "runs"
    json_columns = frozenset({"request", "context", "result", "error", "validation", "usage"})
    json_never_null = frozenset({"request"})

    object: Literal["run"]
    id: Id
    kind: Literal["operate", "act", "consensus"]
    status: Ended
    request: Object
    context: Object | None
    key_id: Id | None
    request_id: str | None
    traceparent: str | None
    replaces: Id | None
    superseded: bool
    cancel_requested_at: Moment | None
    expires_at: Moment | None
    result: Any
    error: Object | None
    validation: Object | None
    finish_reason: str | None
    finish_reason_raw: str | None
    partial_text: str | None
    model: str | None
    usage: Object | None
    attempts: Number
    fallback_index: Number
    last_seq: Number
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment


class AttemptLine(Line):
    """What an attempt at a model used and cost."""

    table = "attempts"

    object: Literal["attempt"]
    stream: Small
    fallback_index: Small
    attempt: Small
    purpose: str
    model: str | None
    provider: str | None
    wire_model: str | None
    outcome: Literal["completed", "failed", "aborted", "lost"]
    code: str | None
    input_tokens: Number
    output_tokens: Number
    cached_input_tokens: Number | None
    cache_write_tokens: Number | None
    reasoning_tokens: Number | None
    reported: bool
    estimated: bool
    cost: Annotated[Decimal, Field(strict=False, ge=0, max_digits=100, allow_inf_nan=False)] | None
    started_at: Moment
    ended_at: Moment


class CallLine(Line):
    """An attempt at a tool call."""

    table = "function_calls"
    json_columns = frozenset({"arguments", "raw_arguments", "response", "error", "gate"})

    object: Literal["function_call"]
    id: Id
    call_id: Id
    attempt: Small
    batch: Number
    index: Number
    function: str
    arguments: Any
    raw_arguments: Any
    arguments_digest: str | None
    provider_call_id: str | None
    action_request_id: Id
    status: Literal["completed", "failed", "skipped", "cancelled", "aborted"]
    duration: Annotated[float, Field(strict=False, ge=0, allow_inf_nan=False)] | None
    response: Any
    error: Any
    retryable: bool | None
    gate: Object | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment


class ApprovalLine(Line):
    """What a person was asked, and decided."""

    table = "approvals"
    json_columns = frozenset({"arguments", "edited"})
    json_never_null = frozenset({"arguments"})

    object: Literal["approval"]
    id: Id
    function_call_id: Id
    function: str
    arguments: Any
    arguments_digest: str
    asked_by: str
    reason: str | None
    status: Literal["approved", "denied", "expired", "cancelled"]
    edited: Object | None
    edited_digest: str | None
    comment: str | None
    decided_by: Id | None
    decided_at: Moment
    created_at: Moment
    expires_at: Moment


class ClientCallLine(Line):
    """What a client was asked to carry out, and brought."""

    table = "client_calls"
    json_columns = frozenset({"arguments", "output", "error"})
    json_never_null = frozenset({"arguments"})

    object: Literal["client_call"]
    function_call_id: Id
    call_id: Id
    attempt: Small
    function: str
    arguments: Any
    arguments_digest: str
    status: Literal["answered", "expired", "cancelled"]
    lease_s: Annotated[float, Field(strict=False, ge=0, allow_inf_nan=False)]
    output: Any
    output_truncated: bool
    error: Any
    result_digest: str | None
    answered_by: Id | None
    created_at: Moment
    expires_at: Moment
    ended_at: Moment


class EventLine(Line):
    """An event of the run's log that is no TOKEN."""

    object: Literal["event"]
    seq: Number
    ts: Ms
    type: str
    stream: Small | None
    attempt: Small | None
    fallback: Small | None
    meta: Object | None
    callbacks: list[Object] | None

    def entry(self) -> EventEntry:
        """As it is stored. Raises KeyError for a type that this version does not know."""
        code = event_types()[self.type].code
        place = (self.stream, self.attempt, self.fallback)
        return EventEntry(self.seq, self.ts, code, *place, _text(self.meta), _text(self.callbacks))


class TokensLine(Line):
    """Consecutive TOKEN events of one attempt, numbered from `seq`."""

    object: Literal["tokens"]
    seq: Number
    ts: Ms
    stream: Small
    attempt: Small
    fallback: Small
    texts: Annotated[list[str], Field(min_length=1, max_length=MAX_BLOCK)]
    delays: list[Number]

    def entry(self) -> TokenBlock:
        """As it is stored."""
        place = (self.stream, self.attempt, self.fallback)
        return TokenBlock(self.seq, self.ts, *place, self.texts, self.delays)


class EndLine(Line):
    """The section is whole."""

    object: Literal["end"]
    lines: int
    """How many it has, this one left out."""


class OmittedLine(Line):
    """A branch that was left out, because a run was active or queued on it."""

    object: Literal["omitted"]
    id: Id
    reason: Literal["busy"]


class ExportEndLine(Line):
    """The file is whole; the last line."""

    object: Literal["export_end"]
    sections: int


KINDS: Final[Mapping[str, type[Line]]] = {
    "export": HeaderLine,
    "branch": BranchLine,
    "message": MessageLine,
    "run": RunLine,
    "attempt": AttemptLine,
    "function_call": CallLine,
    "approval": ApprovalLine,
    "client_call": ClientCallLine,
    "event": EventLine,
    "tokens": TokensLine,
    "end": EndLine,
    "omitted": OmittedLine,
    "export_end": ExportEndLine,
}


def entry_line(entry: Entry) -> bytes:
    """An entry of a log as its line, without the line's end."""
    place = {"seq": entry.seq, "ts": entry.ts, "stream": entry.stream, "attempt": entry.attempt}
    place["fallback"] = entry.fallback
    if isinstance(entry, TokenBlock):
        return orjson.dumps({"object": "tokens", **place, "texts": entry.texts, "delays": entry.delays})
    told = {"type": type_of(entry), "meta": _raw(entry.meta), "callbacks": _raw(entry.callbacks)}
    return orjson.dumps({"object": "event", **place, **told})


def _raw(text: str | None) -> orjson.Fragment | None:
    return None if text is None else orjson.Fragment(text)


def _text(value: Any) -> str | None:
    """JSON text, None for what is empty."""
    return dumps(value).decode() if value else None
