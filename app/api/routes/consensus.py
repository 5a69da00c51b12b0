"""Start runs that ask several models."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import IfMatch, Runner
from app.api.documented import RUN_ANSWERS, RUN_REFUSALS, problems
from app.api.log_views import InLog
from app.api.once import IdempotencyKey
from app.api.running import InRunning, answer, origin_of
from app.core.consensus.request import ConsensusRequest
from app.core.errors import UnknownModel

router = APIRouter(prefix="/v1", tags=["runs"])


@router.post("/consensus", responses=RUN_ANSWERS | problems(*RUN_REFUSALS, UnknownModel))
async def consensus(
    request: Request,
    who: Runner,
    running: InRunning,
    if_match: IfMatch,
    key: IdempotencyKey,
    log: InLog,
    body: Annotated[ConsensusRequest, json_body(ConsensusRequest)],
) -> Response:
    """Ask several models the same, and find what they agree on."""
    origin = origin_of(request, who, key=key, if_match=if_match)
    made = await running.runs.submit("consensus", body.branch_id, body, origin, if_busy=body.if_busy)
    return await answer(request, running, made, log, raises=body)
