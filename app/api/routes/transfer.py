"""Carry histories out of an installation and into another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import ValidationError
from starlette.responses import Response

from app.api.deps import Admin, Anyone, Serving
from app.api.documented import also, answers, problems
from app.api.ndjson import CONTENT, body_lines, streamed
from app.api.problems import body_faults
from app.api.replies import reply
from app.api.schemas.branches import CreateBranch
from app.api.schemas.transfer import ImportView, import_view
from app.core.errors import BodyTooLarge, BranchBusy, Invalid, NotFound, UnsupportedMedia
from app.core.metadata import check_metadata
from app.core.transfer.lines import BranchLine
from app.ports.transfer import IdTaken
from app.services.exports import Exports
from app.services.imports import ImportRefused, Imports

router = APIRouter(prefix="/v1", tags=["transfer"])

_SETTINGS = tuple(CreateBranch.model_fields)


@dataclass(frozen=True, slots=True)
class Transfer:
    """What carries histories."""

    exports: Exports
    imports: Imports
    import_bytes: int
    """Largest export that is taken in."""
    line_bytes: int
    """Longest line of one."""


async def transfer_of(request: Request) -> Transfer:
    """See `Transfer`."""
    found: Transfer = request.app.state.transfer
    return found


InTransfer = Annotated[Transfer, Depends(transfer_of)]


@router.get(
    "/branches/{branch_id}/export",
    response_class=Response,
    responses=also(200, "The branch, a line for each thing", CONTENT) | problems(NotFound, BranchBusy),
)
async def export_branch(branch_id: UUID, who: Admin, transfer: InTransfer) -> Response:
    """Read all of a branch: settings, messages, runs, calls, approvals and events, as NDJSON."""
    return streamed(await transfer.exports.branch(who, branch_id), f"branch-{branch_id}")


@router.get(
    "/projects/{project_id}/export",
    response_class=Response,
    responses=also(200, "Branch after branch, and runs without one", CONTENT) | problems(NotFound),
)
async def export_project(project_id: UUID, who: Anyone, transfer: InTransfer) -> Response:
    """Read all branches and runs of a project as NDJSON. Needs admin for one's own, operator for any."""
    return streamed(await transfer.exports.project(who, project_id), f"project-{project_id}")


@router.post(
    "/import",
    responses=answers(200, ImportView, IdTaken, ImportRefused, BodyTooLarge, UnsupportedMedia),
    openapi_extra={"requestBody": {"required": True, "content": CONTENT}},
)
async def import_export(request: Request, who: Admin, services: Serving, transfer: InTransfer) -> Response:
    """Store what was exported, under the same ids; what the project has already is left alone."""
    choices = services.choices

    def check(line: BranchLine) -> None:
        check_settings(line, choices)

    limits = {"most": transfer.import_bytes, "longest": transfer.line_bytes}
    async with body_lines(request, **limits) as lines:
        return reply(import_view(await transfer.imports.take(who, lines, check)))


def check_settings(line: BranchLine, choices: Any) -> None:
    """Raise Invalid for settings that nobody could give to a new branch."""
    settings = {name: value for name in _SETTINGS if (value := getattr(line, name)) is not None}
    check_metadata(line.metadata)
    try:
        CreateBranch.model_validate(settings, context=choices)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        found = body_faults(faults, settings)
        raise Invalid(found.detail, errors=found.errors) from None
