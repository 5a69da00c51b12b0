"""Runs and function calls as clients see them; `app.api.views` makes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from app.api.schemas.common import PageView, View
from app.api.schemas.usage import COST, COUNTS, CostView, UsageView

RunStatus = Literal["queued", "running", "waiting", "completed", "failed", "cancelled", "expired"]
CallStatus = Literal["pending", "processing", "completed", "failed", "skipped", "cancelled", "aborted"]

_RUN = "019a0000-0000-7000-8000-000000000003"
_BRANCH = "019a0000-0000-7000-8000-000000000001"
_NOW = "2026-11-30T12:00:00.000Z"


class RunView(View):
    """One accepted request and what became of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": _RUN,
                    "object": "run",
                    "kind": "operate",
                    "branch_id": _BRANCH,
                    "status": "completed",
                    "result": "7",
                    "error": None,
                    "validation": None,
                    "finish_reason": "stop",
                    "finish_reason_raw": "stop",
                    "partial_text": None,
                    "model": "local",
                    "function_calls": [],
                    "usage": COUNTS,
                    "cost": COST,
                    "attempts": 1,
                    "fallback_index": 0,
                    "created_at": _NOW,
                    "started_at": _NOW,
                    "ended_at": _NOW,
                    "events_url": f"/v1/runs/{_RUN}/events",
                    "last_seq": 9,
                }
            ]
        }
    )

    id: UUID
    object: Literal["run"]
    kind: Literal["operate", "act", "consensus"]
    branch_id: UUID | None
    status: RunStatus
    result: Any = Field(
        description="The text, the validated value, an act's outcomes, or what a consensus came to."
    )
    error: dict[str, Any] | None = Field(
        description="`{code, message, category, retryable}` of a failed run."
    )
    validation: dict[str, Any] | None = Field(
        description="`{ok, kind, errors, corrections}` when a value was asked for; `corrections` names what "
        "was mended to read it."
    )
    finish_reason: str | None = Field(
        description="stop, length, tool_calls, content_filter or refusal; null when none was given."
    )
    finish_reason_raw: str | None = Field(description="The same in the provider's words.")
    partial_text: str | None = Field(description="What had come of an answer that did not come whole.")
    model: str | None = Field(
        description="The one that answered; null when a result was made of several answers."
    )
    function_calls: list[UUID]
    usage: UsageView | None = Field(description="Of all its attempts; null while and where there is none.")
    cost: CostView | None = Field(description="Of all its attempts; null where no price was known.")
    attempts: int
    fallback_index: int = Field(description="0 for the primary model.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    events_url: str
    last_seq: int = Field(description="Number of the last event that was recorded.")


class RunPage(PageView[RunView]):
    """One page of runs."""


class RunTextView(View):
    """The text of one of a run's streams, as it stands after an event."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "run_id": _RUN,
                    "stream_id": "019a0000-0000-7abc-9def-0123456789ab",
                    "to_seq": 42,
                    "text": "Half an ans",
                    "length": 11,
                }
            ]
        }
    )

    run_id: UUID
    stream_id: UUID
    to_seq: int = Field(description="The event after which it is read.")
    text: str = Field(description="What stays of its TOKEN events, cut wherever an event says so.")
    length: int = Field(description="In code points.")


class ExecutionView(View):
    """How an attempt at a call went."""

    status: CallStatus
    duration: float | None = Field(description="Seconds.")
    response: Any
    error: Any = Field(description="`{error, message}`, or a list of them.")
    retryable: bool | None


class FunctionCallView(View):
    """One attempt at one call of a tool."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "019a0000-0000-7000-8000-000000000006",
                    "object": "function_call",
                    "call_id": "019a0000-0000-7000-8000-000000000007",
                    "attempt": 1,
                    "run_id": _RUN,
                    "branch_id": _BRANCH,
                    "batch": 0,
                    "index": 0,
                    "function": "add",
                    "arguments": {"a": 19, "b": 23},
                    "raw_arguments": {"a": 19, "b": 23},
                    "arguments_digest": None,
                    "provider_call_id": None,
                    "status": "completed",
                    "execution": {
                        "status": "completed",
                        "duration": 0.001,
                        "response": 42,
                        "error": None,
                        "retryable": None,
                    },
                    "gate": None,
                    "action_request_id": "019a0000-0000-7000-8000-000000000008",
                    "action_response_id": "019a0000-0000-7000-8000-000000000009",
                    "created_at": _NOW,
                    "started_at": _NOW,
                    "ended_at": _NOW,
                }
            ]
        }
    )

    id: UUID
    object: Literal["function_call"]
    call_id: UUID = Field(description="The same for every attempt; the tool's idempotency key.")
    attempt: int
    run_id: UUID
    branch_id: UUID | None
    batch: int
    index: int = Field(description="Place in its batch, from 0.")
    function: str
    arguments: Any = Field(description="As they were validated; null when they could not be.")
    raw_arguments: Any = Field(description="As they came.")
    arguments_digest: str | None
    provider_call_id: str | None = Field(description="The model's own id of the call.")
    status: CallStatus
    execution: ExecutionView
    gate: dict[str, Any] | None = Field(
        description="What was decided about it, and on whose word; null when nobody objected."
    )
    action_request_id: UUID
    action_response_id: UUID | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class FunctionCallPage(PageView[FunctionCallView]):
    """One page of function calls."""
