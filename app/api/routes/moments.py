"""Forks of runs: a branch that goes on from a moment of one."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.branch_replies import branch_reply
from app.api.deps import Runner, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.running import InRunning
from app.api.schemas.branches import BranchView, branch_view
from app.api.schemas.moments import ForkRun
from app.core.errors import Conflict, EventsGone, NotFound
from app.services.moments import fork_point

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["runs"])


@router.post("/fork", status_code=201, responses=answers(201, BranchView, NotFound, Conflict, EventsGone))
async def fork_run(
    run_id: UUID,
    who: Runner,
    running: InRunning,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[ForkRun, json_body(ForkRun)],
) -> Response:
    """A branch whose conversation is what the run's was after an event; settings are those of now."""
    once = await asked.once(who, 201, branch_view)
    run = await running.runs.get(who.project_id, run_id)
    point = await fork_point(running.store, run, body.at_seq)
    return branch_reply(await services.branches.fork_run(who, point, name=body.name, once=once), 201)
