"""Tools that models can call. This version has those of the server's own Python modules, read-only."""

from __future__ import annotations

from typing import NoReturn

from fastapi import APIRouter
from starlette.responses import Response

from app.api.deps import Admin, Reader, Serving
from app.api.documented import answers, problems
from app.api.replies import reply
from app.api.schemas.catalog import ToolList, ToolView, tool_view, whole
from app.core.errors import NotFound, UnsupportedOption

router = APIRouter(prefix="/v1/tools", tags=["tools"])


@router.get("", responses=answers(200, ToolList))
async def list_tools(who: Reader, services: Serving) -> Response:
    """List the tools of the project."""
    offered = await services.tools.tools(who.project_id)
    return reply(whole([tool_view(spec) for spec in offered.values()]))


@router.get("/{name}", responses=answers(200, ToolView, NotFound))
async def get_tool(name: str, who: Reader, services: Serving) -> Response:
    """Read a tool."""
    spec = (await services.tools.tools(who.project_id)).get(name)
    if spec is None:
        raise NotFound("There is no tool of this name in this project.")
    return reply(tool_view(spec))


@router.post("", status_code=422, responses=problems(UnsupportedOption))
async def create_tool(who: Admin) -> Response:
    """Say that tools are not made over HTTP yet."""
    _refuse()


@router.put("/{name}", status_code=422, responses=problems(UnsupportedOption))
async def put_tool(name: str, who: Admin) -> Response:
    """Say that tools are not made over HTTP yet."""
    _refuse()


@router.delete("/{name}", status_code=422, responses=problems(UnsupportedOption))
async def delete_tool(name: str, who: Admin) -> Response:
    """Say that tools are not removed over HTTP yet."""
    _refuse()


def _refuse() -> NoReturn:
    raise UnsupportedOption(
        "This version has Python tools only: name their modules in BRANCHLINE_TOOL_MODULES. "
        "The kinds http, mcp and client are not offered yet."
    )
