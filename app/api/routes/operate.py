"""Start runs on a branch: operate and act."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import IfMatch, Runner
from app.api.documented import RUN_ANSWERS, RUN_REFUSALS, problems
from app.api.log_views import InLog
from app.api.once import IdempotencyKey
from app.api.running import (
    InRunning,
    ResultMismatch,
    RunFailed,
    RunTimedOut,
    ToolCallFailed,
    answer,
    origin_of,
)
from app.core.errors import AppError, UnknownModel, UnknownTool
from app.core.operate.request import ActRequest, OperateRequest
from app.core.operate.schema import FieldConflict

router = APIRouter(prefix="/v1/branches/{branch_id}", tags=["runs"])

_REFUSALS: tuple[type[AppError], ...] = (
    *RUN_REFUSALS,
    UnknownTool,
    ToolCallFailed,
    RunFailed,
    RunTimedOut,
)


@router.post(
    "/operate", responses=RUN_ANSWERS | problems(*_REFUSALS, UnknownModel, FieldConflict, ResultMismatch)
)
async def operate(
    request: Request,
    branch_id: UUID,
    who: Runner,
    running: InRunning,
    if_match: IfMatch,
    key: IdempotencyKey,
    log: InLog,
    body: Annotated[OperateRequest, json_body(OperateRequest)],
) -> Response:
    """Ask a model on this branch, validate its answer, and run the tools it asks for."""
    origin = origin_of(request, who, key=key, if_match=if_match)
    made = await running.runs.submit("operate", branch_id, body, origin, if_busy=body.if_busy)
    return await answer(request, running, made, log, raises=body)


@router.post("/act", responses=RUN_ANSWERS | problems(*_REFUSALS))
async def act(
    request: Request,
    branch_id: UUID,
    who: Runner,
    running: InRunning,
    if_match: IfMatch,
    key: IdempotencyKey,
    log: InLog,
    body: Annotated[ActRequest, json_body(ActRequest)],
) -> Response:
    """Run tool calls on this branch, without a model."""
    origin = origin_of(request, who, key=key, if_match=if_match)
    made = await running.runs.submit("act", branch_id, body, origin, if_busy=body.if_busy)
    return await answer(request, running, made, log, raises=body)
