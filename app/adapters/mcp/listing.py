"""Make tools of what an MCP server lists: all of them, or none with the reason."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from app.core.errors import AppError
from app.core.json_schema import InvalidSchema, current_schema
from app.core.json_schema_drafts import DRAFT_04
from app.core.json_text import NotJson, canonical, storable
from app.core.mcp_server import McpServer, offered_name
from app.ports.tool import ToolSpec

MCP_KIND: Final = "mcp"
MAX_PAGES: Final = 50
MAX_TOOLS: Final = 500
"""As many as a project may register."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""JSON of all that is listed."""
MAX_DESCRIPTION: Final = 10_000
"""Code points of a description that are kept; as many as a registered tool may have."""


class ListRefused(Exception):
    """The list cannot be taken; the message says why."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server tells it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    output: Mapping[str, Any] | None
    repeatable: bool
    """Whether the server says that a call may be repeated."""

    def canonical(self) -> bytes:
        """All of it, as JSON."""
        return canonical([self.name, self.description, self.parameters, self.output, self.repeatable])


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of a list."""

    tools: Sequence[ListedTool]
    next: str | None
    """Where it goes on; None at the end."""


async def whole_list(page: Callable[[str | None], Awaitable[Page]]) -> list[ListedTool]:
    """Every tool once, page by page until the end, or a cursor that was there before. Raises ListRefused."""
    found: dict[str, bytes] = {}
    tools: list[ListedTool] = []
    seen: set[str] = set()
    cursor: str | None = None
    size = 0
    for _ in range(MAX_PAGES):
        got = await page(cursor)
        for tool in got.tools:
            text = _text(tool)
            known = found.setdefault(tool.name, text)
            if known is not text:
                if known != text:
                    raise ListRefused(f"the tool {tool.name!r} is listed twice, with two meanings")
                continue
            tools.append(tool)
            size += len(text)
            if len(tools) > MAX_TOOLS:
                raise ListRefused(f"more than {MAX_TOOLS} tools are listed")
            if size > MAX_BYTES:
                raise ListRefused(f"the list has more than {MAX_BYTES} bytes")
        if got.next is None or got.next in seen:
            return tools
        cursor = got.next
        seen.add(cursor)
    raise ListRefused(f"the list has more than {MAX_PAGES} pages")


def specs_of(owner: UUID | None, server: McpServer, tools: Sequence[ListedTool]) -> dict[str, ToolSpec]:
    """The tools under the names that they have here. Raises ListRefused for one that cannot be offered."""
    specs: dict[str, ToolSpec] = {}
    for tool in tools:
        name = offered_name(server.name, tool.name)
        if name in specs:
            other = specs[name].origin or {}
            raise ListRefused(
                f"the tools {other.get('tool')!r} and {tool.name!r} would both be called {name!r} here"
            )
        specs[name] = _spec(owner, server, tool, name)
    return specs


def _spec(owner: UUID | None, server: McpServer, tool: ListedTool, name: str) -> ToolSpec:
    if not tool.name:
        raise ListRefused("a tool without a name is listed")
    try:
        parameters = _current(tool.parameters, "/inputSchema")
        output = None if tool.output is None else _current(tool.output, "/outputSchema")
    except AppError as error:
        raise ListRefused(f"the tool {tool.name!r} cannot be taken: {error.detail}") from None
    if parameters.get("type") != "object":
        raise ListRefused(f"the tool {tool.name!r} cannot be taken: its inputSchema has not the type object")
    return ToolSpec(
        name,
        MCP_KIND,
        storable(tool.description[:MAX_DESCRIPTION]),
        parameters,
        idempotent=server.trust_hints and tool.repeatable,
        settings={"owner": owner, "server": server, "output": output},
        origin={"server": server.name, "tool": tool.name},
        version=hashlib.sha256(tool.canonical()).hexdigest(),
    )


def _current(schema: Mapping[str, Any], at: str) -> Mapping[str, Any]:
    """The schema as it is written today.

    One that says no draft, and is none of today's, is taken for what it meant in draft-04 if it meant
    something there: who registers a server cannot mend what it lists. Raises `InvalidSchema`.
    """
    try:
        return current_schema(schema, at=at)
    except InvalidSchema:
        if "$schema" not in schema:
            with suppress(InvalidSchema):
                return current_schema({"$schema": DRAFT_04, **schema}, at=at)
        raise


def _text(tool: ListedTool) -> bytes:
    try:
        return tool.canonical()
    except NotJson as error:
        raise ListRefused(f"the tool {tool.name[:100]!r} cannot be taken: {error}") from None
