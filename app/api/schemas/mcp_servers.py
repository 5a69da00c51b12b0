"""MCP servers as clients send and see them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.api.bodies import Body
from app.api.replies import instant
from app.api.schemas.common import NotOffered, View
from app.api.schemas.tools import HeaderName, HeaderValue, Milliseconds, Url
from app.core.header_values import shown
from app.core.mcp_server import CALL_MS, CONNECT_MS, REQUEST_MS, SERVER_NAME, McpServer
from app.ports.mcp import Standing, StoredServer

_TIME = "2026-11-30T12:00:00.000Z"
_TIMEOUTS = {"connect": CONNECT_MS, "request": REQUEST_MS, "call": CALL_MS}
_SAID: dict[str, Any] = {
    "url": "https://calendar.example/mcp",
    "headers": {"Authorization": "env:CALENDAR_TOKEN"},
    "timeout_ms": _TIMEOUTS,
    "trust_hints": False,
}


class McpTimeoutBody(Body):
    """How long a server may take, in milliseconds."""

    connect: Milliseconds = Field(CONNECT_MS, description="Until a connection is made.")
    request: Milliseconds = Field(REQUEST_MS, description="The greeting, or a page of the list of tools.")
    call: Milliseconds = Field(CALL_MS, description="A call of a tool, from its beginning to its end.")


class PutMcpServer(Body):
    """Where a server is, and how it is spoken with."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SAID]})

    url: Url = Field(
        description="Where it speaks MCP over streamable HTTP; private addresses only if the operator lists "
        "them."
    )
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=50)] = Field(
        default_factory=dict,
        description="Sent with each request. `env:NAME` sends the value of a variable of the server; the "
        "operator lists which may be used. `credential:NAME` sends the secret of a credential.",
    )
    timeout_ms: McpTimeoutBody = McpTimeoutBody()
    trust_hints: bool = Field(
        False,
        description="Whether a tool counts as idempotent when the server's hints say that it only reads, or "
        "may be called again.",
    )
    command: NotOffered = None

    def server(self, name: str) -> McpServer:
        """The server under the name."""
        limits = self.timeout_ms
        return McpServer(
            name,
            self.url,
            tuple(self.headers.items()),
            connect_ms=limits.connect,
            request_ms=limits.request,
            call_ms=limits.call,
            trust_hints=self.trust_hints,
        )


class CreateMcpServer(PutMcpServer):
    """An MCP server to be registered."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "calendar", **_SAID}]})

    name: Annotated[str, Field(pattern=SERVER_NAME)] = Field(
        description="Part of the names of its tools: `mcp__NAME__TOOL`."
    )


class ReplaceMcpServer(PutMcpServer):
    """An MCP server to be registered, or to take the place of the one with this name."""

    name: str | None = Field(None, description="The same as in the address, if given.")


class McpServerView(View):
    """An MCP server, and what the process that answers knows of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "object": "mcp_server",
                    "name": "calendar",
                    "transport": "http",
                    **_SAID,
                    "source": "project",
                    "state": "ready",
                    "reason": None,
                    "tools": {"mcp__calendar__find_day": "find_day"},
                    "protocol_version": "2026-07-28",
                    "listed_at": _TIME,
                    "created_at": _TIME,
                    "updated_at": _TIME,
                }
            ]
        }
    )

    object: Literal["mcp_server"]
    name: str
    transport: Literal["http", "stdio"]
    url: str | None = Field(description="Null for a process.")
    headers: dict[str, str | None] = Field(
        description="By name, as `env:NAME` or `credential:NAME`; a value that was written out is null."
    )
    timeout_ms: dict[str, int]
    trust_hints: bool
    source: Literal["project", "operator"] = Field(
        description="Who registered it; the operator's are read-only."
    )
    state: Literal["idle", "ready", "refused", "unavailable"] = Field(
        description="Not asked yet by this process; its tools are on offer; its list of tools cannot be "
        "taken, so none is; it does not answer, so those that were known are on offer and their calls fail."
    )
    reason: str | None = Field(description="Why it is refused or unavailable.")
    tools: dict[str, str] | None = Field(
        description="What its tools are called here, each with the server's own name for it; null as long as "
        "there was no list."
    )
    protocol_version: str | None = Field(description="The revision of MCP that is spoken.")
    listed_at: datetime | None = Field(description="When its tools were asked for last.")
    created_at: datetime | None = Field(description="Null for the operator's servers.")
    updated_at: datetime | None


class McpServerList(View):
    """Every MCP server that the project has."""

    data: list[McpServerView]
    has_more: Literal[False]
    next: None


def mcp_server_view(stored: StoredServer, known: Standing | None = None) -> dict[str, Any]:
    """An MCP server as `McpServerView` says."""
    server, known = stored.server, known or Standing()
    listed_ms = known.listed_at_ms
    listed_at = None if listed_ms is None else datetime.fromtimestamp(listed_ms / 1000, UTC)
    return {
        "object": "mcp_server",
        "name": server.name,
        "transport": "stdio" if server.url is None else "http",
        "url": server.url,
        "headers": shown(dict(server.headers)),
        "timeout_ms": server.timeouts(),
        "trust_hints": server.trust_hints,
        "source": "operator" if stored.id is None else "project",
        "state": known.state,
        "reason": known.reason,
        "tools": None if known.tools is None else dict(known.tools),
        "protocol_version": known.protocol,
        "listed_at": instant(listed_at),
        "created_at": instant(stored.created_at),
        "updated_at": instant(stored.updated_at),
    }
