"""Keep MCP servers, and speak with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from app.core.mcp_server import McpServer
from app.ports.catalog import Once
from app.ports.tool import StoredTool, ToolSpec

State = Literal["idle", "ready", "refused", "unavailable"]


@dataclass(frozen=True, slots=True)
class StoredServer:
    """A row of `mcp_servers`, or one of the operator's."""

    server: McpServer
    id: UUID | None = None
    """None for the operator's servers, and so are the times."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What this process knows of a server."""

    state: State = "idle"
    """Not asked yet; its tools are offered; its list cannot be taken; it does not answer."""
    reason: str | None = None
    """Why its list is refused, or what went wrong last."""
    tools: Mapping[str, str] | None = None
    """What its tools are called here, each with the server's name for it; None before there was a list."""
    protocol: str | None = None
    """The revision of the protocol that was agreed upon last."""
    listed_at_ms: float | None = None
    """When its list was taken, milliseconds since the epoch."""


class McpServerStore(Protocol):
    """Servers that projects registered. `by` is the key that asks, for the audit log."""

    async def all(self, project_id: UUID) -> Sequence[StoredServer]:
        """Every server of the project, by name."""

    async def with_tools(self, project_id: UUID) -> tuple[Sequence[StoredTool], Sequence[StoredServer]]:
        """Every tool that the project registered, and every server, by name and in one statement: both are
        looked up for each run.
        """

    async def find(self, project_id: UUID, name: str) -> StoredServer | None:
        """One of them."""

    async def create(
        self, project_id: UUID, server: McpServer, *, by: UUID | None, once: Once | None = None
    ) -> StoredServer:
        """Store a server. Raises Conflict for a name in use and for one too many, AnsweredBefore,
        KeyReused.
        """

    async def put(self, project_id: UUID, server: McpServer, *, by: UUID | None) -> tuple[StoredServer, bool]:
        """Store or replace a server; whether it is new. Raises Conflict for one too many."""

    async def delete(self, project_id: UUID, name: str, *, by: UUID | None) -> None:
        """Remove a server. Raises NotFound."""


class McpPeers(Protocol):
    """The servers as this process has come to know them. `owner` is a project; None is the operator."""

    async def tools(self, owner: UUID | None, server: McpServer) -> Mapping[str, ToolSpec]:
        """What the server offers, by name: none when its list is refused, the last list while it is away.

        The same object as long as nothing has changed. Never raises.
        """

    def standing(self, owner: UUID | None, server: McpServer) -> Standing:
        """What is known now; nobody is asked."""

    def forget(self, owner: UUID | None, server: McpServer) -> None:
        """End the session with a server that is registered no more, when its last call has ended."""
