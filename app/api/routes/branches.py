"""Branches: make, find, change, fork and delete conversations."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.branch_replies import branch_reply
from app.api.deps import Admin, IfMatch, Reader, Runner, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.paging import id_cursor, paged
from app.api.schemas.branches import (
    BranchPage,
    BranchQuery,
    BranchView,
    ChangeBranch,
    CreateBranch,
    ForkBranch,
    branch_view,
)
from app.core.errors import (
    BranchBusy,
    InvalidCursor,
    LegalHold,
    NotFound,
    PreconditionFailed,
    UnknownModel,
    UnknownTool,
    UnsupportedOption,
)

router = APIRouter(prefix="/v1/branches", tags=["branches"])


@router.post(
    "",
    status_code=201,
    responses=answers(201, BranchView, UnknownModel, UnknownTool, UnsupportedOption),
)
async def create_branch(
    who: Runner, services: Serving, asked: AskedOnce, body: Annotated[CreateBranch, json_body(CreateBranch)]
) -> Response:
    """Make a branch."""
    made = await services.branches.create(who, body.new(), await asked.once(who, 201, branch_view))
    return branch_reply(made, 201)


@router.get("", responses=answers(200, BranchPage, InvalidCursor))
async def list_branches(
    request: Request, who: Reader, services: Serving, query: Annotated[BranchQuery, Query()]
) -> Response:
    """List the branches of the project, newest first."""
    page = await services.branches.page(who, query.filter(), query.part(id_cursor))
    return paged(request, page, branch_view, lambda branch: branch.id)


@router.get("/{branch_id}", responses=answers(200, BranchView, NotFound))
async def get_branch(branch_id: UUID, who: Reader, services: Serving) -> Response:
    """Read a branch; its ETag is its version."""
    return branch_reply(await services.branches.get(who, branch_id))


@router.patch(
    "/{branch_id}",
    responses=answers(
        200,
        BranchView,
        NotFound,
        LegalHold,
        PreconditionFailed,
        UnknownModel,
        UnknownTool,
        UnsupportedOption,
    ),
)
async def change_branch(
    branch_id: UUID,
    who: Runner,
    services: Serving,
    if_match: IfMatch,
    body: Annotated[ChangeBranch, json_body(ChangeBranch)],
) -> Response:
    """Change settings: absent members stay, null clears, and `metadata` is merged (RFC 7396)."""
    return branch_reply(await services.branches.change(who, branch_id, body.changes(), if_match=if_match))


@router.delete(
    "/{branch_id}",
    status_code=204,
    responses=answers(204, None, NotFound, BranchBusy, LegalHold, PreconditionFailed),
)
async def delete_branch(branch_id: UUID, who: Runner, services: Serving, if_match: IfMatch) -> Response:
    """Delete a branch with its messages, runs, function calls and events."""
    await services.branches.delete(who, branch_id, if_match=if_match)
    return Response(status_code=204)


@router.post("/{branch_id}/purge", responses=answers(200, BranchView, NotFound, BranchBusy, LegalHold))
async def purge_branch(branch_id: UUID, who: Admin, services: Serving, asked: AskedOnce) -> Response:
    """Remove messages, runs, calls, approvals and events of a branch for good; its settings stay."""
    return branch_reply(
        await services.branches.purge(who, branch_id, await asked.once(who, 200, branch_view))
    )


@router.post("/{branch_id}/fork", status_code=201, responses=answers(201, BranchView, NotFound))
async def fork_branch(
    branch_id: UUID,
    who: Runner,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[ForkBranch, json_body(ForkBranch, optional=True)],
) -> Response:
    """Copy a branch up to a message; the copy goes its own way from there."""
    made = await services.branches.fork(
        who,
        branch_id,
        at_message=body.at_message,
        name=body.name,
        once=await asked.once(who, 201, branch_view),
    )
    return branch_reply(made, 201)
