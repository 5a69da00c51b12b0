"""Approvals: what people are asked about tool calls, and what they say."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import Approver, Reader, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.paging import id_cursor, paged
from app.api.replies import reply
from app.api.running import given
from app.api.schemas.approvals import ApprovalPage, ApprovalQuery, ApprovalView, Decide, approval_view
from app.core.errors import AlreadyDecided, InvalidCursor, NotFound, UnknownTool

router = APIRouter(prefix="/v1", tags=["approvals"])


@router.get("/approvals", responses=answers(200, ApprovalPage, InvalidCursor))
async def list_approvals(
    request: Request, who: Reader, services: Serving, query: Annotated[ApprovalQuery, Query()]
) -> Response:
    """Calls that a person is, or was, asked about, the newest first."""
    filters = given(status=query.status, run_id=query.run_id)
    page = await services.approvals.page(who, filters, query.part(id_cursor))
    return paged(request, page, approval_view, lambda approval: approval.id)


@router.post(
    "/function-calls/{call_id}/decision",
    responses=answers(200, ApprovalView, NotFound, AlreadyDecided, UnknownTool),
)
async def decide_function_call(
    call_id: UUID,
    who: Approver,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[Decide, json_body(Decide)],
) -> Response:
    """Decide about a call that waits; of several decisions the first counts."""
    made = await services.approvals.decide(
        who,
        call_id,
        body.decision,
        arguments=body.arguments,
        comment=body.reason,
        once=await asked.once(who, 200, approval_view),
    )
    return reply(approval_view(made))
