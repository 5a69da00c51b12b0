"""Servers made with the official SDK, of the older revisions and the newest, over both transports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest

from app.adapters.ambient import SystemClock
from app.adapters.mcp.peers import Peers
from app.adapters.tools.mcp import McpTools
from app.core.mcp_server import McpServer
from app.ports.tool import ToolFailure
from tests.support.credentials import FakeCredentials
from tests.support.mcp_server import Offer, in_sessions, over_http, over_stdio, text
from tests.support.mcp_stage import invocation
from tests.support.network import ANYWHERE
from tests.support.polling import until

pytestmark = pytest.mark.anyio

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WAYS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "newest": (over_http, {}, "2026-07-28"),
    "sessions": (in_sessions, {}, "2025-11-25"),
    "sessions, JSON": (in_sessions, {"json_response": True}, "2025-11-25"),
    "no sessions": (in_sessions, {"stateless_http": True}, "2025-11-25"),
    "process": (over_stdio, {}, "2026-07-28"),
}


@asynccontextmanager
async def speaking(way: str, offer: Offer) -> AsyncIterator[tuple[Peers, McpServer]]:
    make, options, _ = WAYS[way]
    peers = Peers(ANYWHERE, {}, FakeCredentials(), {}, SystemClock())
    async with make(offer, **options) as server:
        try:
            yield peers, server
        finally:
            await peers.aclose()


async def number(n: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[], structured_content={"n": n})


async def mixed() -> types.CallToolResult:
    held = types.TextResourceContents(uri="file:///a", mime_type="text/plain", text="held")
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="a"),
            types.ImageContent(type="image", data="AAAA", mime_type="image/png"),
            types.EmbeddedResource(type="resource", resource=held),
        ]
    )


async def plain() -> types.CallToolResult:
    return text("plain")


@pytest.mark.parametrize("way", WAYS)
async def test_it_is_listed_and_called(way: str) -> None:
    offer = Offer()
    offer.add("number", number, output_schema=NUMBER)
    offer.add("mixed", mixed)
    async with speaking(way, offer) as (peers, server):
        specs = await peers.tools(None, server)
        assert peers.standing(None, server).protocol == WAYS[way][2]

        async def call(name: str, **arguments: Any) -> Any:
            spec = specs[f"mcp__offer__{name}"]
            return await McpTools(peers).call(spec, invocation(spec, arguments))

        assert await call("number", n=2**70) == {"n": 2**70}
        with pytest.raises(ToolFailure, match="/n: "):
            await call("number", n="x")
        assert await call("mixed") == [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "held"}},
        ]
        assert await asyncio.gather(*(call("number", n=n) for n in range(30))) == [
            {"n": n} for n in range(30)
        ]


@pytest.mark.parametrize("way", ["newest", "process"])
async def test_its_changes_are_followed(way: str) -> None:
    offer = Offer()
    offer.add("before", plain)
    async with speaking(way, offer) as (peers, server):
        assert list(await peers.tools(None, server)) == ["mcp__offer__before"]
        offer.tools.clear()
        offer.add("after", plain)
        seen = peers.standing(None, server).listed_at_ms
        await until(lambda: offer.bus.listeners > 0)
        await offer.changed()
        await until(lambda: peers.standing(None, server).listed_at_ms != seen)
        assert list(await peers.tools(None, server)) == ["mcp__offer__after"]
