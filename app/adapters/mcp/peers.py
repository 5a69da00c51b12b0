"""All MCP servers that this process speaks with."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from app.adapters.checked_network import CheckedNetwork
from app.adapters.mcp.answer import Answer
from app.adapters.mcp.headers import ServerHeaders
from app.adapters.mcp.peer import Link, Peer
from app.adapters.mcp.trouble import Kind, Trouble
from app.core.errors import UnknownCredential
from app.core.mcp_server import McpServer
from app.ports.ambient import Clock
from app.ports.credentials import Credentials
from app.ports.mcp import Standing
from app.ports.tool import ToolSpec

MOST: Final = 1_000
"""Servers that are known at the same time; the one that was used least recently gives way."""


def is_installed() -> bool:
    """Whether the SDK is there; it is not imported."""
    return importlib.util.find_spec("mcp") is not None


class Peers:
    """A `ports.mcp.McpPeers`; every server has one session here, whoever calls its tools."""

    def __init__(
        self,
        network: CheckedNetwork,
        exposed: Mapping[str, str | None],
        credentials: Credentials,
        variables: Mapping[str, str],
        clock: Clock,
    ) -> None:
        """`network`, `exposed` and `credentials` are for servers of projects; the operator's are at any
        address, and may name any of `variables`. Close it with `aclose()`.
        """
        self._network = network
        self._anywhere = CheckedNetwork(lambda host, address: True, resolve=network.resolve)
        self._exposed = exposed
        self._credentials = credentials
        self._variables = variables
        self._clock = clock
        self._peers: dict[tuple[UUID | None, McpServer], Peer] = {}

    async def aclose(self) -> None:
        """End all sessions and processes."""
        await asyncio.gather(*(peer.aclose() for peer in self._peers.values()))
        self._peers.clear()

    @property
    def away(self) -> int:
        """How many servers do not answer."""
        return sum(peer.standing.state == "unavailable" for peer in self._peers.values())

    async def tools(self, owner: UUID | None, server: McpServer) -> Mapping[str, ToolSpec]:
        """See the port."""
        return await self._peer(owner, server).tools()

    def standing(self, owner: UUID | None, server: McpServer) -> Standing:
        """See the port."""
        peer = self._peers.get((owner, server))
        return Standing() if peer is None else peer.standing

    def forget(self, owner: UUID | None, server: McpServer) -> None:
        """See the port."""
        if (peer := self._peers.pop((owner, server), None)) is not None:
            peer.retire()

    async def call(
        self, owner: UUID | None, server: McpServer, tool: str, arguments: Mapping[str, Any]
    ) -> Answer:
        """What a tool answers, without secrets that were sent. Raises Trouble, TimeoutError."""
        return await self._peer(owner, server).call(tool, arguments)

    def _headers(self, owner: UUID | None, server: McpServer) -> ServerHeaders:
        if owner is None:
            return ServerHeaders(dict(server.headers), self._variables, _no_credential)
        secret_of = partial(self._credentials.secret, owner)
        return ServerHeaders(dict(server.headers), self._exposed, secret_of)

    def _peer(self, owner: UUID | None, server: McpServer) -> Peer:
        key = (owner, server)
        peer = self._peers.pop(key, None)
        if peer is None:
            headers = self._headers(owner, server)
            peer = Peer(owner, server, self._opener(owner, headers), headers, self._clock)
        self._peers[key] = peer
        if len(self._peers) > MOST:
            self._peers.pop(next(iter(self._peers))).retire()
        return peer

    def _opener(
        self, owner: UUID | None, headers: ServerHeaders
    ) -> Callable[[McpServer, Callable[[], None]], Any]:
        network = self._anywhere if owner is None else self._network

        async def open(server: McpServer, changed: Callable[[], None]) -> Link:
            await headers.now()  # Before anything is imported, or anybody greeted.
            open_session = await asyncio.to_thread(_sdk)  # It takes half a second, once.
            link: Link = await open_session(server, headers, network, changed)
            return link

        return open


def _sdk() -> Callable[..., Any]:
    if not is_installed():
        raise Trouble(Kind.NOT_CONFIGURED, "the extra `mcp` is not installed in this process")
    from app.adapters.mcp.session import open_session

    return open_session


async def _no_credential(name: str) -> str:
    raise UnknownCredential(f"The credential {name!r} is none of the operator's; name a variable: env:NAME.")
