"""Tools that models and clients can call."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from app.api.bodies import check_name, json_body
from app.api.deps import Admin, Reader, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.replies import reply
from app.api.schemas.catalog import whole
from app.api.schemas.tools import NAME, CreateTool, ReplaceTool, ToolList, ToolView, tool_view
from app.core.errors import Conflict, NotFound, UnsupportedOption
from app.core.json_schema import InvalidSchema

router = APIRouter(prefix="/v1/tools", tags=["tools"])


@router.get("", responses=answers(200, ToolList))
async def list_tools(who: Reader, services: Serving) -> Response:
    """List the tools of the project: those of the server first, then its own by name."""
    return reply(whole([tool_view(tool) for tool in await services.tools.list(who)]))


@router.post(
    "",
    status_code=201,
    responses=answers(201, ToolView, Conflict, UnsupportedOption, InvalidSchema),
)
async def create_tool(
    who: Admin, services: Serving, asked: AskedOnce, body: Annotated[CreateTool, json_body(CreateTool)]
) -> Response:
    """Register a tool."""
    made = await services.tools.create(who, body.spec(body.name), await asked.once(who, 201, tool_view))
    return reply(tool_view(made), 201, {"Location": f"/v1/tools/{made.spec.name}"})


@router.get("/{name}", responses=answers(200, ToolView, NotFound))
async def get_tool(name: str, who: Reader, services: Serving) -> Response:
    """Read a tool."""
    return reply(tool_view(await services.tools.get(who, name)))


@router.put(
    "/{name}",
    responses=answers(200, ToolView, Conflict, UnsupportedOption, InvalidSchema, says="Replaced")
    | answers(201, ToolView, says="Registered"),
)
async def put_tool(
    name: str, who: Admin, services: Serving, body: Annotated[ReplaceTool, json_body(ReplaceTool)]
) -> Response:
    """Register a tool, or replace the one of this name."""
    check_name("tool", NAME, name, body.name)
    made, new = await services.tools.put(who, body.spec(name))
    return reply(tool_view(made), 201 if new else 200)


@router.delete("/{name}", status_code=204, responses=answers(204, None, NotFound, Conflict))
async def delete_tool(name: str, who: Admin, services: Serving) -> Response:
    """Remove a tool of the project; running runs keep it."""
    await services.tools.delete(who, name)
    return Response(status_code=204)
