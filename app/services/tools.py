"""Tools: register them, and tell which a project can call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from app.core.access import Principal
from app.core.addresses import AddressRule
from app.core.client_tool import CLIENT
from app.core.errors import Conflict, FieldError, Invalid, NotFound
from app.core.http_tool import MOST_MS, HttpSettings, header_faults
from app.core.json_schema import InvalidSchema, current_schema
from app.core.json_text import pointer
from app.core.mcp_server import MCP_PREFIX
from app.ports.ambient import Clock
from app.ports.catalog import Once
from app.ports.mcp import StoredServer
from app.ports.tool import StoredTool, ToolSpec, ToolStore
from app.services.mcp_servers import McpServers
from app.services.memory import Memory
from app.services.models import REMEMBERED_MS
from app.services.named_secrets import NamedSecrets

_Known = tuple[Mapping[str, ToolSpec], Sequence[StoredServer]]


class Tools:
    """The tools of a project: those of the server's Python modules, which every project has, and its own.

    It is a `ports.tool.ToolCatalog`.
    """

    def __init__(
        self,
        store: ToolStore,
        clock: Clock,
        *,
        python: Mapping[str, ToolSpec],
        addresses: AddressRule,
        secrets: NamedSecrets,
        most_ms: int = MOST_MS,
        mcp: McpServers | None = None,
    ) -> None:
        """`secrets` knows what headers and signatures may name; `most_ms` is the longest that any limit of a
        tool may be; `mcp` has further tools.
        """
        self._store = store
        self._python = python
        self._addresses = addresses
        self._secrets = secrets
        self._most_ms = most_ms
        self._mcp = mcp
        self._known: Memory[UUID, _Known] = Memory(clock, REMEMBERED_MS, most=1_000)
        if mcp is not None:
            mcp.watched_by(self._known.forget_all)

    # On the hot path

    async def tools(self, project_id: UUID) -> Mapping[str, ToolSpec]:
        """Every tool of the project by name, the Python ones first and those of MCP servers last."""

        async def read() -> _Known:
            stored, servers = await self._stored(project_id)
            return {tool.spec.name: tool.spec for tool in stored}, servers

        local, servers = await self._known.find(project_id, read)
        return local if self._mcp is None else await self._mcp.offered(project_id, servers, local)

    async def _stored(self, project_id: UUID) -> tuple[Sequence[StoredTool], Sequence[StoredServer]]:
        stored, servers = (
            (await self._store.all(project_id), ())
            if self._mcp is None
            else await self._mcp.with_tools(project_id)
        )
        own = [tool for tool in stored if tool.spec.name not in self._python]
        return [*map(StoredTool, self._python.values()), *own], servers

    async def _of_servers(
        self, project_id: UUID, servers: Sequence[StoredServer], local: Mapping[str, ToolSpec]
    ) -> Sequence[StoredTool]:
        if self._mcp is None:
            return []
        offered = await self._mcp.offered(project_id, servers, local)
        return [StoredTool(spec) for name, spec in offered.items() if name not in local]

    # As a resource

    async def list(self, who: Principal) -> Sequence[StoredTool]:
        """The same, as they are stored."""
        stored, servers = await self._stored(who.project_id)
        local = {tool.spec.name: tool.spec for tool in stored}
        return [*stored, *await self._of_servers(who.project_id, servers, local)]

    async def get(self, who: Principal, name: str) -> StoredTool:
        """One of them. Raises NotFound."""
        if (python := self._python.get(name)) is not None:
            return StoredTool(python)
        stored = await self._store.find(who.project_id, name)
        if stored is None:
            stored = await self._of_a_server(who.project_id, name)
        if stored is None:
            raise NotFound("There is no tool of this name in this project.")
        return stored

    async def _of_a_server(self, project_id: UUID, name: str) -> StoredTool | None:
        if not name.startswith(MCP_PREFIX):
            return None
        spec = (await self.tools(project_id)).get(name)
        return StoredTool(spec) if spec is not None and spec.origin is not None else None

    async def create(self, who: Principal, spec: ToolSpec, once: Once | None = None) -> StoredTool:
        """Register a tool. Raises Invalid, Conflict, NoSealingKey."""
        spec = await self._checked(who.project_id, spec)
        made = await self._store.create(who.project_id, spec, by=who.key_id, once=once)
        self._known.forget_all()
        return made

    async def put(self, who: Principal, spec: ToolSpec) -> tuple[StoredTool, bool]:
        """Register or replace a tool; whether it is new. Raises Invalid, Conflict, NoSealingKey."""
        spec = await self._checked(who.project_id, spec)
        made = await self._store.put(who.project_id, spec, by=who.key_id)
        self._known.forget_all()
        return made

    async def delete(self, who: Principal, name: str) -> None:
        """Remove a tool of the project. Raises NotFound, Conflict for a Python tool."""
        try:
            await self._store.delete(who.project_id, name, by=who.key_id)
        except NotFound:
            if name in self._python:
                raise _read_only(name) from None
            if await self._of_a_server(who.project_id, name) is not None:
                raise Conflict("This tool is an MCP server's; it goes with the server.") from None
            raise
        self._known.forget_all()

    async def _checked(self, project_id: UUID, spec: ToolSpec) -> ToolSpec:
        """The tool as it is stored: its schema in the draft that models and providers are shown."""
        if spec.name in self._python:
            raise _read_only(spec.name)
        spec = replace(spec, parameters=current_schema(spec.parameters, at="/parameters"))
        faults = [*_argument_faults(spec)]
        if spec.kind != CLIENT:
            http = HttpSettings.of(spec.settings)
            faults += self._http_faults(http)
            faults += await self._secrets.header_faults(project_id, http.headers, "http", "headers")
            faults += await self._secrets.signing_faults(project_id, http.signing, "http", "signing")
        if faults:
            words = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            raise Invalid(f"The tool cannot be registered: {words}.", errors=faults)
        return spec

    def _http_faults(self, http: HttpSettings) -> Iterator[FieldError]:
        if fault := self._addresses.fault_of_any(http.url, instead="; use headers"):
            yield FieldError("/http/url", fault, "address_not_allowed")
        for name, fault in header_faults(http.headers).items():
            yield FieldError(pointer("http", "headers", name), fault)
        for limit, asked_ms in http.settings()["timeout_ms"].items():
            if asked_ms > self._most_ms:
                words = (
                    f"give less: the operator allows {self._most_ms} ms at most (BRANCHLINE_TOOL_TIMEOUT_S)"
                )
                yield FieldError(pointer("http", "timeout_ms", limit), words)


def _argument_faults(spec: ToolSpec) -> Iterator[FieldError]:
    if spec.parameters.get("type") != "object":
        words = "the schema of a tool's arguments has the type object"
        yield FieldError("/parameters/type", words, InvalidSchema.code)


def _read_only(name: str) -> Conflict:
    words = "it is a Python tool of this server, which is changed in its module"
    return Conflict(
        f"The tool {name!r} is read-only: {words}.", errors=[FieldError("/name", words, "name_taken")]
    )
