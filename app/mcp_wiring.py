"""Put together what speaks with MCP servers; the SDK is not imported before one is spoken with."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.adapters.checked_network import CheckedNetwork
from app.adapters.db.mcp_servers import PostgresMcpServers
from app.adapters.db.session import Database
from app.adapters.mcp.peers import Peers, is_installed
from app.adapters.run_figures import RunFigures
from app.adapters.tools.mcp import McpTools
from app.core.addresses import AddressRule
from app.core.mcp_server import McpServer
from app.ports.ambient import Clock, IdSource
from app.ports.sealing import Vault
from app.services.mcp_servers import McpServers
from app.services.named_secrets import NamedSecrets
from app.settings import BadSettings, Settings


@dataclass(frozen=True, slots=True)
class Speaking:
    """What the rest of the service needs of it."""

    servers: McpServers
    runner: McpTools
    peers: Peers

    def show(self, figures: RunFigures) -> None:
        """Tell how many servers are away."""
        figures.gauge(
            "mcp_servers_unavailable",
            "MCP servers that do not answer this process",
            lambda: float(self.peers.away),
        )


@asynccontextmanager
async def speaking(
    settings: Settings,
    database: Database,
    clock: Clock,
    ids: IdSource,
    addresses: AddressRule,
    network: CheckedNetwork,
    secrets: NamedSecrets,
    vault: Vault,
    *,
    installed: bool | None = None,
) -> AsyncIterator[Speaking]:
    """For the block; its end ends all sessions and processes. Raises BadSettings.

    `installed` says whether the SDK is there; None looks.
    """
    installed = is_installed() if installed is None else installed
    operator = {each.name: each.server() for each in settings.mcp_servers}
    _check(operator, len(settings.mcp_servers), installed)
    peers = Peers(network, secrets.exposed, secrets.credentials, os.environ, clock)
    servers = McpServers(
        PostgresMcpServers(database, ids, vault),
        peers,
        operator=operator,
        addresses=addresses,
        secrets=secrets,
        installed=installed,
    )
    try:
        yield Speaking(servers, McpTools(peers), peers)
    finally:
        await peers.aclose()


def _check(operator: Mapping[str, McpServer], named: int, installed: bool) -> None:
    if len(operator) < named:
        raise BadSettings("mcp_servers: two servers have the same name")
    if operator and not installed:
        raise BadSettings("mcp_servers: the extra `mcp` is not installed: pip install 'branchline[mcp]'")
    for server in operator.values():
        for variable in (*server.variables().values(), *server.env):
            if not os.environ.get(variable):
                raise BadSettings(f"mcp_servers: {server.name}: the variable {variable!r} is not set")
