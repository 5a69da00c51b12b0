"""Projects and their API keys."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import Anyone, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.paging import PageQuery, id_cursor, paged
from app.api.replies import reply
from app.api.schemas.projects import (
    ChangeProject,
    CreateKey,
    CreateProject,
    KeyPage,
    KeyView,
    NewKeyView,
    ProjectPage,
    ProjectView,
    key_view,
    project_view,
)
from app.core.errors import Conflict, InvalidCursor, NotFound

router = APIRouter(prefix="/v1/projects", tags=["projects"])


@router.get("", responses=answers(200, ProjectPage, InvalidCursor))
async def list_projects(
    request: Request, who: Anyone, services: Serving, query: Annotated[PageQuery, Query()]
) -> Response:
    """List every project. Needs the scope operator."""
    page = await services.projects.page(who, query.part(id_cursor))
    return paged(request, page, project_view, lambda project: project.id)


@router.post("", status_code=201, responses=answers(201, ProjectView, Conflict))
async def create_project(
    who: Anyone, services: Serving, asked: AskedOnce, body: Annotated[CreateProject, json_body(CreateProject)]
) -> Response:
    """Make a project. Needs the scope operator."""
    once = await asked.once(who, 201, project_view)
    made = await services.projects.create(who, body.name, body.level(), once)
    return reply(project_view(made), 201, {"Location": f"/v1/projects/{made.id}"})


@router.get("/{project_id}", responses=answers(200, ProjectView, NotFound))
async def get_project(project_id: UUID, who: Anyone, services: Serving) -> Response:
    """Read a project: one's own, or any with the scope operator."""
    return reply(project_view(await services.projects.get(who, project_id)))


@router.patch("/{project_id}", responses=answers(200, ProjectView, NotFound, Conflict))
async def change_project(
    project_id: UUID,
    who: Anyone,
    services: Serving,
    body: Annotated[ChangeProject, json_body(ChangeProject)],
) -> Response:
    """Change a project. Needs the scope admin for one's own, operator for any."""
    return reply(project_view(await services.projects.change(who, project_id, body.changes())))


@router.get("/{project_id}/keys", responses=answers(200, KeyPage, NotFound, InvalidCursor))
async def list_keys(
    project_id: UUID, request: Request, who: Anyone, services: Serving, query: Annotated[PageQuery, Query()]
) -> Response:
    """List the keys of a project, without their texts. Needs admin for one's own, operator for any."""
    page = await services.keys.page(who, project_id, query.part(id_cursor))
    return paged(request, page, key_view, lambda key: key.id)


@router.post("/{project_id}/keys", status_code=201, responses=answers(201, NewKeyView, NotFound))
async def create_key(
    project_id: UUID,
    who: Anyone,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[CreateKey, json_body(CreateKey)],
) -> Response:
    """Make a key, whose text is shown this once. Needs admin for one's own project, operator for any."""
    made, text = await services.keys.create(
        who,
        project_id,
        name=body.name,
        scopes=body.scope_set(),
        expires_at=body.expires_at,
        once=await asked.once(who, 201, key_view, within=project_id),
    )
    return reply({**key_view(made), "key": text}, 201)


@router.delete("/{project_id}/keys/{key_id}", responses=answers(200, KeyView, NotFound))
async def revoke_key(project_id: UUID, key_id: UUID, who: Anyone, services: Serving) -> Response:
    """Revoke a key for good; every process refuses it within five seconds."""
    return reply(key_view(await services.keys.revoke(who, project_id, key_id)))
