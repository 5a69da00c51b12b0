"""Client calls: tool calls that a client's own program carries out."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import Reader, Runner, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.paging import id_cursor, paged
from app.api.replies import reply
from app.api.running import given
from app.api.schemas.client_calls import (
    BringResult,
    ClaimCall,
    ClaimedCallView,
    ClientCallPage,
    ClientCallQuery,
    ClientCallView,
    claimed_call_view,
    client_call_view,
)
from app.core.errors import (
    AlreadyAnswered,
    ArgumentsDiffer,
    CallLeased,
    CallNotWaiting,
    ClaimLost,
    InvalidCursor,
    NotFound,
)

router = APIRouter(prefix="/v1", tags=["client calls"])


@router.get("/client-calls", responses=answers(200, ClientCallPage, InvalidCursor))
async def list_client_calls(
    request: Request, who: Reader, services: Serving, query: Annotated[ClientCallQuery, Query()]
) -> Response:
    """Calls of tools of the kind `client`, the newest first."""
    filters = given(
        status=query.status, function=query.function, run_id=query.run_id, branch_id=query.branch_id
    )
    page = await services.client_calls.page(who, filters, query.part(id_cursor))
    return paged(request, page, client_call_view, lambda call: call.function_call_id)


@router.post(
    "/function-calls/{call_id}/claim",
    responses=answers(200, ClaimedCallView, NotFound, CallNotWaiting, CallLeased, ClaimLost),
)
async def claim_function_call(
    call_id: UUID,
    who: Runner,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[ClaimCall, json_body(ClaimCall, optional=True)],
) -> Response:
    """Have a call for oneself for a while, so that of several workers one does it, or keep it for longer."""
    made = await services.client_calls.claim(
        who,
        call_id,
        held=body.lease_token,
        lease_s=body.lease_s,
        once=await asked.once(who, 200, claimed_call_view),
    )
    return reply(claimed_call_view(made))


@router.post(
    "/function-calls/{call_id}/result",
    responses=answers(
        200,
        ClientCallView,
        *(NotFound, CallNotWaiting, AlreadyAnswered, CallLeased, ClaimLost, ArgumentsDiffer),
    ),
)
async def bring_function_call_result(
    call_id: UUID,
    who: Runner,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[BringResult, json_body(BringResult)],
) -> Response:
    """Say what came of a call; of several results the first counts, and the same one again is no fault."""
    made = await services.client_calls.bring(
        who,
        call_id,
        body.result(),
        held=body.lease_token,
        arguments_digest=body.arguments_digest,
        once=await asked.once(who, 200, client_call_view),
    )
    return reply(client_call_view(made))
