"""All MCP servers that this process speaks with."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

from app.adapters.checked_network import MayReach
from app.adapters.mcp.answer import Answer
from app.adapters.mcp.peer import Link, Peer
from app.adapters.mcp.trouble import Kind, Trouble
from app.adapters.tools.headers import Unsendable, secrets_in, sent_headers, without
from app.core.mcp_server import McpServer
from app.ports.ambient import Clock
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
        may_reach: MayReach,
        exposed: Mapping[str, str | None],
        variables: Mapping[str, str],
        clock: Clock,
    ) -> None:
        """`may_reach` and `exposed` hold for servers of projects; the operator's are at any address, and may
        name any of `variables`. Close it with `aclose()`.
        """
        self._may_reach = may_reach
        self._exposed = exposed
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
        """What a tool answers. Raises Trouble, TimeoutError."""
        return await self._peer(owner, server).call(tool, arguments)

    def told(self, owner: UUID | None, server: McpServer, words: str) -> str:
        """The words of a server without what we have sent it as a secret."""
        with suppress(Trouble):
            return without(secrets_in(self._headers(owner, server)), words)
        return words

    def _headers(self, owner: UUID | None, server: McpServer) -> dict[str, str]:
        """What is sent with each request, names in lower case. Raises Trouble for one that cannot be."""
        exposed = self._variables if owner is None else self._exposed
        try:
            return sent_headers(dict(server.headers), exposed)
        except Unsendable as error:
            raise Trouble(Kind.NOT_CONFIGURED, str(error)) from None

    def _peer(self, owner: UUID | None, server: McpServer) -> Peer:
        key = (owner, server)
        peer = self._peers.pop(key, None)
        if peer is None:
            told = partial(self.told, owner, server)
            peer = Peer(owner, server, self._opener(owner), told, self._clock)
        self._peers[key] = peer
        if len(self._peers) > MOST:
            self._peers.pop(next(iter(self._peers))).retire()
        return peer

    def _opener(self, owner: UUID | None) -> Callable[[McpServer, Callable[[], None]], Any]:
        async def open(server: McpServer, changed: Callable[[], None]) -> Link:
            headers = self._headers(owner, server)
            open_session = await asyncio.to_thread(_sdk)  # It takes half a second, once.
            may_reach: MayReach = self._may_reach if owner is not None else lambda host, address: True
            link: Link = await open_session(server, headers, may_reach, changed)
            return link

        return open


def _sdk() -> Callable[..., Any]:
    if not is_installed():
        raise Trouble(Kind.NOT_CONFIGURED, "the extra `mcp` is not installed in this process")
    from app.adapters.mcp.session import open_session

    return open_session
