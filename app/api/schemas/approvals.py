"""Bodies of what people are asked about tool calls, and of what they say."""

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
from app.ports.waiting import ApprovalRecord

Status = Literal["pending", "approved", "denied", "expired", "cancelled"]


class ApprovalQuery(PageQuery):
    """Which approvals are listed."""

    status: Status | None = None
    run_id: UUID | None = None


class Decide(Body):
    """What a person says to a call that waits."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"decision": "approve", "reason": "checked"}]})

    decision: Literal["approve", "deny", "edit"] = Field(
        description="Let the call be made, or not, or let it be made with other arguments."
    )
    arguments: dict[str, Any] | None = Field(
        None, description="Of `edit`: what the tool is called with; they have to fit its schema."
    )
    reason: Annotated[str, Field(max_length=2_000)] | None = Field(
        None, description="Kept with the decision; the model is told the reason of a denial."
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.decision == "edit") != (self.arguments is not None):
            raise ValueError("`arguments` are given with `edit`, and only with it")
        return self


class ApprovalView(View):
    """A call that a person is, or was, asked about."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "019a0000-0000-7000-8000-000000000009",
                    "object": "approval",
                    "function_call_id": "019a0000-0000-7000-8000-000000000006",
                    "run_id": "019a0000-0000-7000-8000-000000000002",
                    "function": "transfer",
                    "arguments": {"amount": 500},
                    "arguments_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "asked_by": "branch.gate",
                    "reason": "more than 100 needs a person",
                    "status": "pending",
                    "edited_arguments": None,
                    "comment": None,
                    "decided_by": None,
                    "decided_at": None,
                    "created_at": "2026-11-30T12:00:00.000Z",
                    "expires_at": "2026-12-01T12:00:00.000Z",
                }
            ]
        }
    )

    id: UUID
    object: Literal["approval"]
    function_call_id: UUID
    run_id: UUID
    function: str
    arguments: dict[str, Any]
    arguments_digest: str
    asked_by: str = Field(
        description="What asks: `project.gate`, `branch.gate`, `project.permissions` or `branch.permissions`."
    )
    reason: str | None
    status: Status
    edited_arguments: dict[str, Any] | None
    comment: str | None
    decided_by: UUID | None
    decided_at: datetime | None
    created_at: datetime
    expires_at: datetime


class ApprovalPage(PageView[ApprovalView]):
    """One page of approvals."""


def approval_view(approval: ApprovalRecord) -> dict[str, Any]:
    """An `ApprovalView`."""
    return {
        "id": str(approval.id),
        "object": "approval",
        "function_call_id": str(approval.function_call_id),
        "run_id": str(approval.run_id),
        "function": approval.function,
        "arguments": raw(approval.arguments),
        "arguments_digest": approval.arguments_digest,
        "asked_by": approval.asked_by,
        "reason": approval.reason,
        "status": approval.status,
        "edited_arguments": raw(approval.edited),
        "comment": approval.comment,
        "decided_by": None if approval.decided_by is None else str(approval.decided_by),
        "decided_at": instant(approval.decided_at),
        "created_at": instant(approval.created_at),
        "expires_at": instant(approval.expires_at),
    }
