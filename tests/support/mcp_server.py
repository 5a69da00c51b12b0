"""A true MCP server, made with the official SDK: on a loopback port, or behind a process's pipes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.lowlevel import NotificationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.message import SessionMessage
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import Response

from app.core.mcp_server import McpServer
from tests.support.polling import until

Handler = Callable[..., Awaitable[types.CallToolResult]]

BRIDGE = """
import socket, sys, threading
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def forward():
    while data := sys.stdin.buffer.raw.read(65536):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
threading.Thread(target=forward, daemon=True).start()
while data := peer.recv(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
"""
"""A program whose standard input and output lead to a port, where the server is in the test's own loop."""


def text(said: str) -> types.CallToolResult:
    """A result that is a text."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=said)])


def failed(said: str) -> types.CallToolResult:
    """A result that is an error."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=said)], is_error=True)


class Bus(InMemorySubscriptionBus):
    """Tells whether anybody has come to listen."""

    listeners = 0

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        """Count another one."""
        self.listeners += 1
        return super().subscribe(listener)


@dataclass
class Offer:
    """What the server offers; to be changed while it serves."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    tools: dict[str, types.Tool] = field(default_factory=dict)
    listings: int = 0
    """How often the list was asked for."""
    bus: Bus = field(default_factory=Bus)
    sessions: set[Any] = field(default_factory=set)
    """Of the older revisions, those that have been seen."""

    def add(self, name: str, handler: Handler, **more: Any) -> None:
        """Offer a tool that takes anything, unless something else is said."""
        self.handlers[name] = handler
        self.tools[name] = types.Tool(name=name, **{"input_schema": {"type": "object"}, **more})

    async def changed(self) -> None:
        """Tell everybody that the list is another one."""
        await self.bus.publish(ToolsListChanged())
        for session in self.sessions:
            await session.send_tool_list_changed()

    def server(self) -> Server[Any]:
        """A server of the SDK's."""

        async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
            self.listings += 1
            self._seen(ctx)
            return types.ListToolsResult(tools=list(self.tools.values()))

        async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            self._seen(ctx)
            return await self.handlers[params.name](**(params.arguments or {}))

        return Server(
            "offer",
            on_list_tools=listed,
            on_call_tool=called,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    def _seen(self, ctx: Any) -> None:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self.sessions.add(ctx.session)


class _Quiet(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Any:
        """Signals are pytest's."""
        yield


@asynccontextmanager
async def serving(asgi: Any) -> AsyncIterator[str]:
    """An application on a free loopback port, for the block; its address."""
    config = uvicorn.Config(asgi, port=0, log_level="critical", timeout_graceful_shutdown=1, lifespan="on")
    server = _Quiet(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def over_http(offer: Offer, **options: Any) -> AsyncIterator[McpServer]:
    """The server over streamable HTTP."""
    async with serving(offer.server().streamable_http_app(**options)) as url:
        yield McpServer("offer", f"{url}/mcp")


@asynccontextmanager
async def in_sessions(offer: Offer, **options: Any) -> AsyncIterator[McpServer]:
    """The same as an older one: whoever comes with the newest revision is sent away."""
    app = offer.server().streamable_http_app(**options)

    async def older(scope: Any, receive: Any, send: Any) -> None:
        said = dict(scope.get("headers", ())).get(b"mcp-protocol-version", b"").decode()
        if said in MODERN_PROTOCOL_VERSIONS:
            await Response("no such revision", 400)(scope, receive, send)
        else:
            await app(scope, receive, send)

    async with serving(older) as url:
        yield McpServer("offer", f"{url}/mcp")


@asynccontextmanager
async def over_stdio(offer: Offer) -> AsyncIterator[McpServer]:
    """The server behind the pipes of a process."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.create_task(_serve(offer.server(), reader, writer)))
        await asyncio.wait([task])

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, limit=4 * 1024 * 1024)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield McpServer("offer", command=(sys.executable, "-c", BRIDGE, str(port)))
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _serve(server: Server[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with incoming:
            while line := await reader.readline():
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                await incoming.send(SessionMessage(message))

    async def write() -> None:
        async with outgoing:
            async for each in outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(text.encode() + b"\n")
                await writer.drain()

    try:
        options = server.create_initialization_options(NotificationOptions(tools_changed=True))
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(write)
            await server.run(received, sent, options)
            group.cancel_scope.cancel()
    finally:
        writer.close()


WAYS: Mapping[str, Callable[..., Any]] = {"mcp over HTTP": over_http, "mcp over stdio": over_stdio}
