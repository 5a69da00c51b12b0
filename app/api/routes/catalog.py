"""What this server is and knows: its version, its event types, its problems."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from app.api.deps import Anyone, Serving
from app.api.documented import answers
from app.api.errors import ErrorEntry, known_errors
from app.api.replies import reply
from app.api.schemas.catalog import EventTypeList, VersionView, event_type_view
from app.api.schemas.problems import ProblemType, ProblemTypeList
from app.core.errors import NotFound
from app.core.events import event_types

router = APIRouter(tags=["catalog"])


@router.get("/v1/version", responses=answers(200, VersionView))
async def get_version(who: Anyone, services: Serving) -> Response:
    """Tell which version of Branchline this is."""
    return reply({"name": "branchline", "version": services.edge.version})


@router.get("/v1/event-types", responses=answers(200, EventTypeList))
async def list_event_types(who: Anyone) -> Response:
    """List the types of event that runs leave, with the members of their `meta`."""
    return reply({"data": [event_type_view(kind) for _, kind in sorted(event_types().items())]})


@router.get("/problems", responses=answers(200, ProblemTypeList))
async def list_problem_types() -> Response:
    """List the codes that a problem can carry."""
    return reply({"data": [_shown(entry) for entry in known_errors()]})


@router.get("/problems/{code}", responses=answers(200, ProblemType, NotFound))
async def get_problem_type(code: str) -> Response:
    """Explain a problem: the `type` of each one leads here."""
    for entry in known_errors():
        if entry.code == code:
            return reply(_shown(entry))
    raise NotFound("There is no problem of this code.")


def _shown(entry: ErrorEntry) -> dict[str, object]:
    return {
        "code": entry.code,
        "status": entry.status,
        "category": entry.category,
        "retryable": entry.retryable,
        "description": entry.description,
    }
