"""MCP servers, whose tools models and clients can call."""

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
from app.api.schemas.mcp_servers import (
    CreateMcpServer,
    McpServerList,
    McpServerView,
    ReplaceMcpServer,
    mcp_server_view,
)
from app.core.errors import Conflict, NotFound, UnsupportedOption
from app.core.mcp_server import SERVER_NAME

router = APIRouter(prefix="/v1/mcp-servers", tags=["tools"])


@router.get("", responses=answers(200, McpServerList))
async def list_mcp_servers(who: Reader, services: Serving) -> Response:
    """List the project's MCP servers and the operator's, by name, with what this process knows of them."""
    return reply(whole([mcp_server_view(*each) for each in await services.mcp_servers.list(who)]))


@router.post("", status_code=201, responses=answers(201, McpServerView, Conflict, UnsupportedOption))
async def create_mcp_server(
    who: Admin,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[CreateMcpServer, json_body(CreateMcpServer)],
) -> Response:
    """Register an MCP server. It is asked for its tools when somebody wants to know them."""
    made = await services.mcp_servers.create(
        who, body.server(body.name), await asked.once(who, 201, mcp_server_view)
    )
    return reply(mcp_server_view(made), 201, {"Location": f"/v1/mcp-servers/{made.server.name}"})


@router.get("/{name}", responses=answers(200, McpServerView, NotFound))
async def get_mcp_server(name: str, who: Reader, services: Serving) -> Response:
    """Read an MCP server, with its tools, for which it is asked if this process has not done so."""
    return reply(mcp_server_view(*await services.mcp_servers.get(who, name)))


@router.put(
    "/{name}",
    responses=answers(200, McpServerView, Conflict, UnsupportedOption, says="Replaced")
    | answers(201, McpServerView, says="Registered"),
)
async def put_mcp_server(
    name: str, who: Admin, services: Serving, body: Annotated[ReplaceMcpServer, json_body(ReplaceMcpServer)]
) -> Response:
    """Register an MCP server, or replace the one of this name."""
    check_name("MCP server", SERVER_NAME, name, body.name)
    made, new = await services.mcp_servers.put(who, body.server(name))
    return reply(mcp_server_view(made, services.mcp_servers.standing(who, made)), 201 if new else 200)


@router.delete("/{name}", status_code=204, responses=answers(204, None, NotFound, Conflict))
async def delete_mcp_server(name: str, who: Admin, services: Serving) -> Response:
    """Remove an MCP server of the project, and its tools; running runs keep them."""
    await services.mcp_servers.delete(who, name)
    return Response(status_code=204)
