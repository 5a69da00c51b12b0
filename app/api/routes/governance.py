"""Policies, tried on calls that took place; and who changed what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import Admin
from app.api.documented import answers
from app.api.paging import id_cursor, paged
from app.api.replies import reply
from app.api.running import InRunning, given
from app.api.schemas.governance import (
    AuditPage,
    AuditQuery,
    SimulatePolicy,
    SimulationView,
    audit_view,
    simulation_view,
)
from app.core.errors import FieldError, InvalidCursor, NotFound, UnsupportedOption

router = APIRouter(prefix="/v1", tags=["governance"])


@router.post("/policies/simulate", responses=answers(200, SimulationView, NotFound, UnsupportedOption))
async def simulate_policy(
    who: Admin, running: InRunning, body: Annotated[SimulatePolicy, json_body(SimulatePolicy)]
) -> Response:
    """Tell what a policy would have decided about stored function calls; nothing is changed by it."""
    if body.policy.needs_others:
        words = "a gate at another address cannot be tried: it would be asked about calls that are over"
        raise UnsupportedOption(
            f"The policy cannot be simulated: {words}.",
            errors=[FieldError("/policy/gate/http", words, UnsupportedOption.code)],
        )
    if body.run_id is not None:
        await running.runs.get(who.project_id, body.run_id)
    if body.branch_id is not None:
        await running.runs.require_branch(who.project_id, body.branch_id)
    made = await running.simulator.simulate(who.project_id, body.policies(), body.filters(), body.limit)
    return reply(simulation_view(made))


@router.get("/audit-log", responses=answers(200, AuditPage, InvalidCursor))
async def list_audit_log(
    request: Request, who: Admin, running: InRunning, query: Annotated[AuditQuery, Query()]
) -> Response:
    """List the changes of policies, keys, models and webhooks of the project, the newest first."""
    filters = given(action=query.action, subject=query.subject, key_id=query.key_id)
    page = await running.listings.audit(who.project_id, filters, query.part(id_cursor))
    return paged(request, page, audit_view, lambda record: record.id)
