"""MCP servers: register them, and offer their tools beside those of the project."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from app.core.access import Principal
from app.core.addresses import AddressRule
from app.core.errors import Conflict, FieldError, Invalid, NotFound, UnsupportedOption
from app.core.json_text import pointer
from app.core.mcp_server import McpServer, server_header_faults
from app.ports.catalog import Once
from app.ports.mcp import McpPeers, McpServerStore, Standing, StoredServer
from app.ports.tool import StoredTool, ToolSpec
from app.services.named_secrets import NamedSecrets


class McpServers:
    """The servers of a project: the operator's, which every project has, and its own."""

    def __init__(
        self,
        store: McpServerStore,
        peers: McpPeers,
        *,
        operator: Mapping[str, McpServer],
        addresses: AddressRule,
        secrets: NamedSecrets,
        installed: bool,
    ) -> None:
        """`secrets` knows what headers may name; `installed` says whether any server can be spoken with."""
        self._store = store
        self._peers = peers
        self._operator = operator
        self._addresses = addresses
        self._secrets = secrets
        self._installed = installed
        self._changed: Callable[[], None] = lambda: None

    # For the catalogue of tools

    def watched_by(self, changed: Callable[[], None]) -> None:
        """Have it called when a server was registered, replaced or removed here."""
        self._changed = changed

    async def with_tools(self, project_id: UUID) -> tuple[Sequence[StoredTool], Sequence[StoredServer]]:
        """What the project registered: tools, and servers."""
        return await self._store.with_tools(project_id)

    async def offered(
        self, project_id: UUID, own: Sequence[StoredServer], local: Mapping[str, ToolSpec]
    ) -> Mapping[str, ToolSpec]:
        """The `local` tools, and after them those of the operator's servers and of the project's `own`.

        A local tool is never replaced. A server that is away, or whose list is refused, adds nothing new.
        """
        asked: list[tuple[UUID | None, McpServer]] = [(None, each) for each in self._operator.values()]
        asked += [(project_id, s.server) for s in own if s.server.name not in self._operator]
        if not asked:
            return local
        found = await asyncio.gather(*(self._peers.tools(owner, server) for owner, server in asked))
        out = dict(local)
        for specs in found:
            for name, spec in specs.items():
                out.setdefault(name, spec)
        return out

    # As a resource

    async def list(self, who: Principal) -> Sequence[tuple[StoredServer, Standing]]:
        """Every server that the project has, by name, and what is known of it; none is asked."""
        own = await self._store.all(who.project_id)
        theirs = [StoredServer(server) for server in self._operator.values()]
        both = [*theirs, *(stored for stored in own if stored.server.name not in self._operator)]
        both.sort(key=lambda stored: stored.server.name)
        return [(stored, self.standing(who, stored)) for stored in both]

    async def get(self, who: Principal, name: str) -> tuple[StoredServer, Standing]:
        """One of them, asked for its tools if that has not been done. Raises NotFound."""
        stored = await self._found(who, name)
        await self._peers.tools(_owner(who, stored), stored.server)
        return stored, self.standing(who, stored)

    async def create(self, who: Principal, server: McpServer, once: Once | None = None) -> StoredServer:
        """Register a server; nobody is asked yet.

        Raises Invalid, UnsupportedOption, Conflict, NoSealingKey.
        """
        await self._check(who.project_id, server)
        made = await self._store.create(who.project_id, server, by=who.key_id, once=once)
        self._changed()
        return made

    async def put(self, who: Principal, server: McpServer) -> tuple[StoredServer, bool]:
        """Register or replace a server; whether it is new. Raises what `create` raises."""
        await self._check(who.project_id, server)
        before = await self._store.find(who.project_id, server.name)
        made = await self._store.put(who.project_id, server, by=who.key_id)
        if before is not None:
            self._peers.forget(who.project_id, before.server)
        self._changed()
        return made

    async def delete(self, who: Principal, name: str) -> None:
        """Remove a server of the project. Raises NotFound, Conflict for one of the operator's."""
        if name in self._operator:
            raise _read_only(name)
        before = await self._store.find(who.project_id, name)
        await self._store.delete(who.project_id, name, by=who.key_id)
        if before is not None:
            self._peers.forget(who.project_id, before.server)
        self._changed()

    def standing(self, who: Principal, stored: StoredServer) -> Standing:
        """What is known of a server; nobody is asked."""
        return self._peers.standing(_owner(who, stored), stored.server)

    async def _found(self, who: Principal, name: str) -> StoredServer:
        if (server := self._operator.get(name)) is not None:
            return StoredServer(server)
        stored = await self._store.find(who.project_id, name)
        if stored is None:
            raise NotFound("There is no MCP server of this name in this project.")
        return stored

    async def _check(self, project_id: UUID, server: McpServer) -> None:
        if not self._installed:
            words = "MCP servers need the extra `mcp` of this installation: pip install 'branchline[mcp]'"
            raise UnsupportedOption(f"This server cannot be registered: {words}.")
        if server.name in self._operator:
            raise _read_only(server.name)
        headers = dict(server.headers)
        faults = [
            *self._faults(server),
            *await self._secrets.header_faults(project_id, headers, "headers"),
        ]
        if faults:
            words = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            raise Invalid(f"The MCP server cannot be registered: {words}.", errors=faults)

    def _faults(self, server: McpServer) -> Iterator[FieldError]:
        if fault := self._addresses.fault_of_any(server.url or "", instead="; use headers"):
            yield FieldError("/url", fault, "address_not_allowed")
        for name, fault in server_header_faults(dict(server.headers)).items():
            yield FieldError(pointer("headers", name), fault)


def _owner(who: Principal, stored: StoredServer) -> UUID | None:
    return None if stored.id is None else who.project_id


def _read_only(name: str) -> Conflict:
    words = "it is the operator's, which is changed in branchline.toml"
    return Conflict(
        f"The MCP server {name!r} is read-only: {words}.", errors=[FieldError("/name", words, "name_taken")]
    )
