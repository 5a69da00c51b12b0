"""A peer that a test plays, and what speaks with it, without the service around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from app.adapters.checked_network import CheckedNetwork
from app.adapters.mcp.peers import Peers
from app.adapters.tools.mcp import McpTools
from app.core.mcp_server import McpServer
from app.ports.tool import Invocation, ToolFailure, ToolSpec
from tests.support.ambient import FakeClock
from tests.support.credentials import FakeCredentials
from tests.support.mcp_peer import RawPeer, tool

PROJECT = UUID(int=1)


class Stage:
    """A peer, and what speaks with it."""

    def __init__(self, peer: RawPeer, peers: Peers, clock: FakeClock, **server: Any) -> None:
        self.peer = peer
        self.peers = peers
        self.clock = clock
        self.server = McpServer("peer", peer.url, **server)
        self.runner = McpTools(peers)

    @property
    def standing(self) -> Any:
        """What is known of the server."""
        return self.peers.standing(PROJECT, self.server)

    async def tools(self) -> Mapping[str, ToolSpec]:
        """What is offered."""
        return await self.peers.tools(PROJECT, self.server)

    async def names(self) -> list[str]:
        """The same by the server's own names."""
        return [name.removeprefix("mcp__peer__") for name in await self.tools()]

    async def call(self, name: str = "a", **arguments: Any) -> Any:
        """What a tool gives."""
        spec = (await self.tools())[f"mcp__peer__{name}"]
        return await self.runner.call(spec, invocation(spec, arguments))

    async def failure(self, name: str = "a", **arguments: Any) -> ToolFailure:
        """Why a tool gives nothing."""
        with pytest.raises(ToolFailure) as caught:
            await self.call(name, **arguments)
        return caught.value


def invocation(spec: ToolSpec, arguments: dict[str, Any]) -> Invocation:
    """A call of the tool."""
    return Invocation(UUID(int=9), spec.name, arguments, UUID(int=2), UUID(int=3), PROJECT)


@asynccontextmanager
async def staged(
    peer: RawPeer | None = None,
    *,
    may_reach: Callable[[str, str], bool] = lambda host, address: True,
    exposed: Mapping[str, str | None] | None = None,
    secrets: Mapping[str, str] | None = None,
    **server: Any,
) -> AsyncIterator[Stage]:
    """The peer on a loopback port and what speaks with it, for the block."""
    clock = FakeClock()
    credentials = FakeCredentials({} if secrets is None else secrets)
    peers = Peers(CheckedNetwork(may_reach), exposed or {}, credentials, {}, clock)
    async with peer or RawPeer([tool("a"), tool("b")]) as serving:
        try:
            yield Stage(serving, peers, clock, **server)
        finally:
            await peers.aclose()
