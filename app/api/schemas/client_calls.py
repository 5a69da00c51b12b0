"""Bodies of tool calls that clients carry out, and of what they bring."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator

from app.api.bodies import Body
from app.api.paging import PageQuery
from app.api.replies import instant
from app.api.schemas.common import PageView, View
from app.api.views import raw
from app.core.client_tool import MOST_LEASE_S
from app.ports.waiting import ClientCallRecord

Status = Literal["waiting", "answered", "expired", "cancelled"]
Token = Annotated[UUID, Field(strict=False)]

_TOKEN = "019a0000-0000-7000-8000-00000000000b"
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_SEEN: dict[str, Any] = {
    "id": "019a0000-0000-7000-8000-000000000006",
    "object": "client_call",
    "call_id": "019a0000-0000-7000-8000-000000000007",
    "attempt": 1,
    "run_id": "019a0000-0000-7000-8000-000000000002",
    "branch_id": "019a0000-0000-7000-8000-000000000001",
    "function": "open_door",
    "arguments": {"door": "east"},
    "arguments_digest": _DIGEST,
    "status": "waiting",
    "leased_until": "2026-11-30T12:01:00.000Z",
    "leased_by": None,
    "output": None,
    "output_truncated": False,
    "error": None,
    "answered_by": None,
    "created_at": "2026-11-30T12:00:00.000Z",
    "expires_at": "2026-11-30T13:00:00.000Z",
    "ended_at": None,
}


class ClientCallQuery(PageQuery):
    """Which calls are listed."""

    status: Status | None = None
    function: str | None = None
    run_id: UUID | None = None
    branch_id: UUID | None = None


class ClaimCall(Body):
    """A worker wants a call to itself, or to keep one that it has."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lease_s": 120}]})

    lease_s: Annotated[float, Field(gt=0, le=MOST_LEASE_S)] | None = Field(
        None, description="For how many seconds from now on; the tool's `lease_s` by default."
    )
    lease_token: Token | None = Field(
        None, description="Of the lease that is to be prolonged; left out to get a new one."
    )


class ResultError(Body):
    """Why a call gave no output."""

    type: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="A word for programs, for example `NOT_FOUND`."
    )
    message: Annotated[str, Field(max_length=10_000)] = Field(description="What the model is told.")
    retryable: bool | None = Field(
        None, description="Whether the same call may work later, if that is known."
    )


class BringResult(Body):
    """What came of a call: an output or an error."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"output": {"open": True}, "lease_token": _TOKEN},
                {"error": {"type": "JAMMED", "message": "the door does not move", "retryable": True}},
            ]
        }
    )

    output: Any = Field(None, description="Any JSON value, null too.")
    error: ResultError | None = None
    lease_token: Token | None = Field(None, description="Needed while a worker has the call.")
    arguments_digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="That of the call which was read; another one than the call's is refused."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if ("output" in self.model_fields_set) == (self.error is not None):
            raise ValueError("give either `output` or `error`")
        return self

    def result(self) -> dict[str, Any]:
        """The one of them that was given."""
        if self.error is not None:
            return {"error": self.error.model_dump()}
        return {"output": self.output}


class ClientCallView(View):
    """A tool call that a client carries out, or did."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SEEN]})

    id: UUID = Field(description="That of its function call.")
    object: Literal["client_call"]
    call_id: UUID = Field(
        description="The same for every attempt at the call; what is done once is done by it."
    )
    attempt: int
    run_id: UUID
    branch_id: UUID | None
    function: str
    arguments: dict[str, Any]
    arguments_digest: str
    status: Status
    leased_until: datetime | None = Field(
        description="Until then one worker has it to itself; null for none."
    )
    leased_by: UUID | None = Field(description="Id of the key of the worker that had it last.")
    output: Any
    output_truncated: bool = Field(description="Whether `output` is the beginning of a longer one.")
    error: ResultError | None
    answered_by: UUID | None
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None


class ClaimedCallView(ClientCallView):
    """A call that a worker has to itself."""

    model_config = ConfigDict(json_schema_extra={"examples": [{**_SEEN, "lease_token": _TOKEN}]})

    lease_token: UUID = Field(description="To be given with the result, and to prolong the lease.")


class ClientCallPage(PageView[ClientCallView]):
    """One page of calls."""


def client_call_view(call: ClientCallRecord) -> dict[str, Any]:
    """A `ClientCallView`."""
    return {
        "id": str(call.function_call_id),
        "object": "client_call",
        "call_id": str(call.call_id),
        "attempt": call.attempt,
        "run_id": str(call.run_id),
        "branch_id": None if call.branch_id is None else str(call.branch_id),
        "function": call.function,
        "arguments": raw(call.arguments),
        "arguments_digest": call.arguments_digest,
        "status": call.status,
        "leased_until": instant(call.lease_until),
        "leased_by": None if call.leased_by is None else str(call.leased_by),
        "output": raw(call.output),
        "output_truncated": call.output_truncated,
        "error": raw(call.error),
        "answered_by": None if call.answered_by is None else str(call.answered_by),
        "created_at": instant(call.created_at),
        "expires_at": instant(call.expires_at),
        "ended_at": instant(call.ended_at),
    }


def claimed_call_view(call: ClientCallRecord) -> dict[str, Any]:
    """A `ClaimedCallView`."""
    return {**client_call_view(call), "lease_token": str(call.lease_token)}
