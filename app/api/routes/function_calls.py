"""Function calls: the record of every tool call, however it ended."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.deps import Reader
from app.api.documented import answers
from app.api.paging import PageQuery, id_cursor, paged
from app.api.replies import reply
from app.api.running import InRunning, given
from app.api.schemas.runs import FunctionCallPage, FunctionCallView
from app.api.views import call_body
from app.core.errors import InvalidCursor, NotFound

router = APIRouter(prefix="/v1", tags=["function calls"])

Status = Literal["pending", "processing", "completed", "failed", "skipped", "cancelled", "aborted"]


class BranchCallsQuery(PageQuery):
    """Which calls are listed."""

    function: str | None = None
    status: Status | None = None
    run_id: UUID | None = None


class CallsQuery(BranchCallsQuery):
    """Which calls of all branches are listed."""

    branch_id: UUID | None = None


@router.get("/function-calls", responses=answers(200, FunctionCallPage, InvalidCursor))
async def list_function_calls(
    request: Request, who: Reader, running: InRunning, query: Annotated[CallsQuery, Query()]
) -> Response:
    """Function calls of the project, the newest first."""
    filters = given(
        function=query.function, status=query.status, run_id=query.run_id, branch_id=query.branch_id
    )
    page = await running.listings.calls(who.project_id, filters, query.part(id_cursor))
    return paged(request, page, call_body, lambda call: call.id)


@router.get(
    "/branches/{branch_id}/function-calls", responses=answers(200, FunctionCallPage, NotFound, InvalidCursor)
)
async def list_branch_function_calls(
    request: Request,
    branch_id: UUID,
    who: Reader,
    running: InRunning,
    query: Annotated[BranchCallsQuery, Query()],
) -> Response:
    """Function calls of a branch, the newest first."""
    await running.runs.require_branch(who.project_id, branch_id)
    filters = given(branch_id=branch_id, function=query.function, status=query.status, run_id=query.run_id)
    page = await running.listings.calls(who.project_id, filters, query.part(id_cursor))
    return paged(request, page, call_body, lambda call: call.id)


@router.get("/function-calls/{call_id}", responses=answers(200, FunctionCallView, NotFound))
async def get_function_call(call_id: UUID, who: Reader, running: InRunning) -> Response:
    """One function call."""
    return reply(call_body(await running.listings.call(who.project_id, call_id)))
