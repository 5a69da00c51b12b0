"""An MCP peer that answers as a test says, over streamable HTTP with sessions, as older servers have them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

REVISION = "2025-11-25"


@dataclass(frozen=True, slots=True)
class Asked:
    """A message that the peer was sent."""

    method: str
    params: dict[str, Any]
    session: str | None
    headers: dict[str, str]
    """Names in lower case."""


class Refusal(Exception):
    """To be raised by an answer: an HTTP status with this body, or an error of JSON-RPC."""

    def __init__(self, status: int = 200, body: str = "", error: dict[str, Any] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.error = error


Answer = Callable[[Asked], Awaitable[Any]]


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A tool of a list, which takes any object."""
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def said(text: str, **more: Any) -> dict[str, Any]:
    """The result of a call."""
    return {"content": [{"type": "text", "text": text}], **more}


@dataclass
class RawPeer:
    """Started and stopped as a context; `answers` by method may be set and changed at any time."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    streaming: dict[str, Callable[[Asked, web.BaseRequest], Awaitable[web.StreamResponse]]] = field(
        default_factory=dict
    )
    """The same for answers that the test writes by itself."""
    unknown: int = 404
    """What is answered to a session that is not known."""
    streams: bool = True
    """Whether an answer is an event stream."""
    asked: list[Asked] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    gone: int = 0
    """Requests whose connection was closed before the answer."""

    def __post_init__(self) -> None:
        self._made = 0
        self._listeners: list[asyncio.Queue[dict[str, Any]]] = []
        self._runner: web.ServerRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def count(self, method: str) -> int:
        """How often it was asked this."""
        return sum(each.method == method for each in self.asked)

    def notify(self, method: str = "notifications/tools/list_changed") -> None:
        """Tell all who listen."""
        for listener in self._listeners:
            listener.put_nowait({"jsonrpc": "2.0", "method": method})

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    async def restart(self) -> None:
        """Forget every session."""
        self.sessions.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, at the port that it had before."""
        self._runner = web.ServerRunner(
            web.Server(self._handled, handler_cancellation=True), shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handled(self, request: web.BaseRequest) -> web.StreamResponse:
        session = request.headers.get("mcp-session-id")
        if request.method == "GET":
            return await self._listening(request, session)
        if request.method == "DELETE":
            self.sessions.discard(session or "")
            return web.Response(status=200)
        body = json.loads(await request.read())
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(body.get("method", "(answer)"), body.get("params") or {}, session, headers)
        self.asked.append(asked)
        if "id" not in body or "method" not in body:
            return web.Response(status=202)
        try:
            return await self._answered(request, body["id"], asked)
        except Refusal as refusal:
            if refusal.error is not None:
                error = {"jsonrpc": "2.0", "id": body["id"], "error": refusal.error}
                return web.json_response(error, status=refusal.status)
            return web.Response(status=refusal.status, text=refusal.body)
        except asyncio.CancelledError:
            self.gone += 1
            raise

    async def _answered(self, request: web.BaseRequest, id: Any, asked: Asked) -> web.StreamResponse:
        headers = {}
        if asked.method == "initialize":
            self._made += 1
            headers["mcp-session-id"] = session = f"session-{self._made}"
            self.sessions.add(session)
        elif asked.method == "server/discover":
            raise Refusal(error={"code": -32601, "message": "Method not found"})
        elif asked.session not in self.sessions:
            raise Refusal(self.unknown, "no such session")
        if (begun := self.streaming.get(asked.method)) is not None:
            return await begun(asked, request)
        answer = self.answers.get(asked.method, getattr(self, "_" + asked.method.replace("/", "_"), None))
        if answer is None:
            raise Refusal(error={"code": -32601, "message": "Method not found"})
        result = await answer(asked)
        if isinstance(result, web.StreamResponse):
            return result
        message = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}, ensure_ascii=False)
        if not self.streams:
            return web.Response(text=message, content_type="application/json", headers=headers)
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **headers})
        await response.prepare(request)
        await response.write(f"event: message\ndata: {message}\n\n".encode())
        return response

    async def _initialize(self, asked: Asked) -> dict[str, Any]:
        return {
            "protocolVersion": REVISION,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "peer", "version": "1"},
        }

    async def _tools_list(self, asked: Asked) -> dict[str, Any]:
        return {"tools": self.tools}

    async def _tools_call(self, asked: Asked) -> dict[str, Any]:
        return said(asked.params["name"])

    async def _listening(self, request: web.BaseRequest, session: str | None) -> web.StreamResponse:
        if session not in self.sessions:
            return web.Response(status=self.unknown)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            with suppress(ConnectionError):
                while True:
                    message = await queue.get()
                    await response.write(f"data: {json.dumps(message)}\n\n".encode())
        finally:
            self._listeners.remove(queue)
        return response


def paged(pages: Sequence[dict[str, Any]]) -> Answer:
    """A list in pages, by the cursor that each is for; the last one for a cursor that is none of them."""

    async def answer(asked: Asked) -> dict[str, Any]:
        cursor = asked.params.get("cursor")
        page = next((page for page in pages if page["cursor_in"] == cursor), pages[-1])
        listed: dict[str, Any] = {"tools": [tool(name) for name in page["tools"]]}
        return listed | {"nextCursor": page["nextCursor"]} if "nextCursor" in page else listed

    return answer
