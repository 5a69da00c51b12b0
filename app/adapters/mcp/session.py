"""One session with an MCP server, by way of the official SDK; importing this imports the SDK."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import httpx2
import mcp_types as types
import structlog
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from app import __version__
from app.adapters.checked_network import CheckedNetwork
from app.adapters.mcp.answer import NOTHING, Answer
from app.adapters.mcp.headers import ServerHeaders
from app.adapters.mcp.listing import ListedTool, Page
from app.adapters.mcp.process import process_of
from app.adapters.mcp.trouble import Kind, Trouble
from app.adapters.mcp.wire import MAX_BYTES, Wire
from app.core.mcp_server import McpServer

IDLE_S: Final = 900.0
"""How long a session over HTTP is kept that nobody uses."""
AGAIN_S: Final = 30.0
"""Pause before changes are listened to again, after the server had ended that."""
CLOSE_S: Final = 10.0
"""How long the end of a session may take."""

log = structlog.get_logger("mcp")

for _name in ("mcp", "client", "httpx2"):
    # They tell addresses, identifiers of sessions and whole messages; what matters of it is told by us.
    logging.getLogger(_name).setLevel(logging.CRITICAL)

_CLOSED: Final = "Connection closed"
"""What the SDK says of a request whose whole connection has ended, not of one whose answer has."""

_RESULT: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class Session:
    """Made by `open_session`, and used until it is not `alive`, or a request says that it is lost."""

    def __init__(self, server: McpServer, changed: Callable[[], None]) -> None:
        self.protocol = ""
        self._server = server
        self._changed = changed
        self._ended = asyncio.Event()
        self._users = 0
        self._retired = False
        self._wire: Wire | None = None
        self._client: Client | None = None
        self._used_at = 0.0
        self._host: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it can be asked, as far as is known here."""
        return self._host is not None and not self._host.done() and not self._ended.is_set()

    async def page(self, cursor: str | None) -> Page:
        """A page of the list of tools. Raises Trouble."""
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        async with asyncio.timeout(self._server.request_ms / 1000):
            found = await self._asking(lambda client: client.session.list_tools(params=params))
        return Page([_listed(tool) for tool in found.tools], found.next_cursor)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """What a tool answers. Raises Trouble.

        A cancelled call is called off at the server too.
        """
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        request = types.CallToolRequest(params=params)
        found = await self._asking(lambda client: client.session.send_request(request, _RESULT))
        if isinstance(found, types.InputRequiredResult):
            raise Trouble(Kind.REFUSED, "the tool asks for more input, which nobody here can give")
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in found.content]
        given = "structured_content" in found.model_fields_set
        # Null means that there is none, up to the revisions that allow any value.
        told = given and (found.structured_content is not None or self.protocol in MODERN_PROTOCOL_VERSIONS)
        return Answer(blocks, found.structured_content if told else NOTHING, found.is_error)

    def retire(self) -> None:
        """End as soon as the last request that is under way has its answer."""
        self._retired = True
        if not self._users:
            self._ended.set()

    async def aclose(self) -> None:
        """End now."""
        self._ended.set()
        if self._host is not None:
            if self._client is not None:
                await asyncio.wait([self._host], timeout=CLOSE_S)
            self._host.cancel()
            await asyncio.wait([self._host])

    async def open(self, headers: ServerHeaders, network: CheckedNetwork) -> None:
        """Greet the server. Raises Trouble."""
        greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The SDK's contexts have to be left by the task that has entered them.
        self._host = asyncio.create_task(self._live(greeted, headers, network))
        limit_s = (self._server.connect_ms + self._server.request_ms) / 1000
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(greeted)
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise Trouble(Kind.UNAVAILABLE, f"no greeting within {limit_s:g} s") from None
            raise

    async def _asking(self, ask: Callable[[Client], Any]) -> Any:
        client = self._client
        if client is None or not self.alive:
            raise Trouble(Kind.NOT_SENT, "the session had ended before the request")
        self._users += 1
        self._used_at = asyncio.get_running_loop().time()
        try:
            return await ask(client)
        except MCPError as error:
            raise self._trouble(error) from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            raise Trouble(
                Kind.INVALID, f"the answer is not what the protocol says: {where}: {first['msg']}"
            ) from None
        finally:
            self._users -= 1
            if self._retired and not self._users:
                self._ended.set()

    def _trouble(self, error: MCPError) -> Trouble:
        told = None if self._wire is None else self._wire.trouble(error.error.data)
        if told is not None:
            return told
        if error.code == types.CONNECTION_CLOSED:
            if error.message == _CLOSED:
                self._ended.set()
            return Trouble(Kind.LOST, f"{error.message}; whether the tool took effect is unknown")
        if error.code == types.PARSE_ERROR:
            return Trouble(Kind.INVALID, "the answer is no message of JSON-RPC")
        return Trouble(Kind.REFUSED, f"{error.message} ({error.code})")

    # The host.

    async def _live(
        self, greeted: asyncio.Future[None], headers: ServerHeaders, network: CheckedNetwork
    ) -> None:
        try:
            async with AsyncExitStack() as stack:
                transport = self._transport(headers, network)
                client = Client(
                    transport,
                    cache=None,
                    message_handler=self._heard,
                    client_info=types.Implementation(name="branchline", version=__version__),
                )
                await stack.enter_async_context(client)
                self._client, self.protocol = client, client.protocol_version
                if self.protocol in MODERN_PROTOCOL_VERSIONS:
                    listening = asyncio.create_task(self._listen(client))
                    stack.push_async_callback(_over, listening)
                greeted.set_result(None)
                await self._until_ended()
        except BaseException as error:
            if not greeted.done():
                greeted.set_exception(self._why(error))
            elif isinstance(error, asyncio.CancelledError):
                raise
            else:  # Whoever has a request under way is told by the SDK; the next one makes another session.
                log.warning("a session broke off", server=self._server.name, error=type(error).__name__)
        finally:
            self._ended.set()

    async def _until_ended(self) -> None:
        loop = asyncio.get_running_loop()
        self._used_at = loop.time()
        while True:
            try:
                async with asyncio.timeout(None if self._server.url is None else IDLE_S):
                    await self._ended.wait()
                    return
            except TimeoutError:
                if not self._users and loop.time() - self._used_at >= IDLE_S:
                    return

    @asynccontextmanager
    async def _transport(self, headers: ServerHeaders, network: CheckedNetwork) -> AsyncIterator[Any]:
        if self._server.url is None:
            async with process_of(self._server, self._ended) as streams:
                yield streams
            return
        self._wire = Wire(network, headers)
        client = httpx2.AsyncClient(
            transport=self._wire,
            headers={"user-agent": "branchline", "accept-encoding": "identity"},
            timeout=httpx2.Timeout(None, connect=self._server.connect_ms / 1000),
            trust_env=False,
        )
        async with (
            client,
            streamable_http_client(
                self._server.url, http_client=client, max_sse_event_size=MAX_BYTES
            ) as streams,
        ):
            yield streams

    async def _heard(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed()

    async def _listen(self, client: Client) -> None:
        """Ask for the notice of changes that older revisions send by themselves."""
        capability = client.server_capabilities.tools
        while capability is not None and capability.list_changed:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._changed()
            except (MCPError, SubscriptionLost, TimeoutError):
                pass
            await asyncio.sleep(AGAIN_S)
            self._changed()  # Whatever was changed meanwhile was told to nobody.

    def _why(self, error: BaseException) -> Trouble:
        """What a failed greeting comes to."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, Trouble):
            return error
        if isinstance(error, MCPError):
            return self._trouble(error)
        words = f"the server could not be greeted: {type(error).__name__}: {error}"
        return Trouble(Kind.INVALID, words[:300])


async def _over(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _listed(tool: types.Tool) -> ListedTool:
    hints = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or "",
        tool.input_schema,
        tool.output_schema,
        repeatable=hints is not None and bool(hints.idempotent_hint or hints.read_only_hint),
    )


async def open_session(
    server: McpServer, headers: ServerHeaders, network: CheckedNetwork, changed: Callable[[], None]
) -> Session:
    """A session that has been agreed upon; `changed` is told when the list of tools is another.

    Raises Trouble.
    """
    session = Session(server, changed)
    await session.open(headers, network)
    return session
