"""The limits of keys and projects.

Requests here are not counted: who has used up all others can still ask why, and who may set limits can do so.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import Serving, Uncounted
from app.api.documented import answers
from app.api.replies import reply
from app.api.schemas.catalog import whole
from app.api.schemas.limits import LimitsList, LimitsView, limits_view
from app.core.errors import NotFound
from app.core.limits.quota import QuotaLimits

router = APIRouter(prefix="/v1", tags=["limits"])

Wanted = Annotated[QuotaLimits, json_body(QuotaLimits)]


@router.get("/limits", responses=answers(200, LimitsList))
async def list_own_limits(who: Uncounted, services: Serving) -> Response:
    """Read what limits the key that asks, and its project, and what is left."""
    return reply(whole([limits_view(each) for each in await services.limits.own(who)]))


@router.get("/projects/{project_id}/limits", responses=answers(200, LimitsView, NotFound))
async def get_project_limits(project_id: UUID, who: Uncounted, services: Serving) -> Response:
    """Read the limits of a project: one's own, or any with the scope operator."""
    return reply(limits_view(await services.limits.used(who, project_id, None)))


@router.put("/projects/{project_id}/limits", responses=answers(200, LimitsView, NotFound))
async def put_project_limits(project_id: UUID, who: Uncounted, services: Serving, body: Wanted) -> Response:
    """Set all limits of a project. Needs the scope admin for one's own, operator for any."""
    return reply(limits_view(await services.limits.set(who, project_id, None, body)))


@router.get("/projects/{project_id}/keys/{key_id}/limits", responses=answers(200, LimitsView, NotFound))
async def get_key_limits(project_id: UUID, key_id: UUID, who: Uncounted, services: Serving) -> Response:
    """Read the limits of a key: one's own, or with the scope admin or operator."""
    return reply(limits_view(await services.limits.used(who, project_id, key_id)))


@router.put("/projects/{project_id}/keys/{key_id}/limits", responses=answers(200, LimitsView, NotFound))
async def put_key_limits(
    project_id: UUID, key_id: UUID, who: Uncounted, services: Serving, body: Wanted
) -> Response:
    """Set all limits of a key. Needs the scope admin in its project, or operator."""
    return reply(limits_view(await services.limits.set(who, project_id, key_id, body)))
