"""Carry the SDK's requests over HTTP: only to addresses that may be reached, and each failure told apart.

The SDK ends a whole session when one request fails below HTTP. So whatever goes wrong with a request becomes
an answer to that request alone: an error of JSON-RPC, whose `data` says what happened under a mark that no
server can know.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import anyio
import httpcore
import httpcore2
import httpx2
import orjson

from app.adapters.checked_network import AddressRefused, CheckedNetwork
from app.adapters.mcp.headers import ServerHeaders
from app.adapters.mcp.trouble import Kind, Trouble
from app.core import json_text

MAX_BYTES: Final = 1024 * 1024 + 65_536
"""Largest answer that is read: one output of the largest size, and what is around it."""
NOTICE_S: Final = 2.0
"""How long a message may take that no answer is expected to."""
WORDS_BYTES: Final = 16_384
WORDS_S: Final = 1.0
"""How much is read of an error's body, and how long."""
IDLE_S: Final = 4.0
"""How long an unused connection is kept; many servers close one after five seconds."""

_SESSION: Final = "mcp-session-id"
_PASSING: Final = frozenset({429, 502, 503, 504})
_ABOUT_THE_REQUEST: Final = frozenset({-32601, -32602})
"""Codes of errors that a request has earned by itself, whatever became of the session."""
_NOT_SENT: Final = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore2.ConnectError,
    httpcore2.ConnectTimeout,
)
_BROKEN: Final = (
    *(httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException),
    *(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException),
    OSError,
)
_UNKNOWN: Final = "whether the tool took effect is unknown"


class Wire(httpx2.AsyncBaseTransport):
    """The transport of one session's HTTP client."""

    def __init__(
        self, network: CheckedNetwork, headers: ServerHeaders, *, tls: ssl.SSLContext | None = None
    ) -> None:
        """`headers` are sent with each request, beside the SDK's own. Close it with `aclose()`."""
        self._headers = headers
        # Its interface is httpcore's, of which the SDK's own HTTP client is a later edition.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or httpx2.create_ssl_context(),
            max_connections=None,
            keepalive_expiry=IDLE_S,
            network_backend=cast(httpcore2.AsyncNetworkBackend, network),
        )
        self._mark = secrets.token_hex(8)
        self._asked: dict[Any, anyio.CancelScope] = {}
        self._streams: dict[Any, _Stream] = {}

    def trouble(self, data: Any) -> Trouble | None:
        """What this transport said in the `data` of an error; None for a server's error."""
        told = data.get(self._mark) if isinstance(data, dict) else None
        return None if told is None else Trouble(Kind(told["kind"]), told["words"])

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See httpx2; never raises for a request of JSON-RPC."""
        if request.method != "POST":
            if request.method == "DELETE":
                return await self._noticed(request, 204)
            return _streamed(request, await self._sent(request), None)
        message = orjson.loads(await request.aread())  # our own, of which only the envelope is of interest
        asked = message.get("id") if "method" in message else None
        if asked is None:
            answer = await self._noticed(request, 202)
            if message.get("method") == "notifications/cancelled":
                await self._abandon(message["params"]["requestId"])
            return answer
        # The SDK cancels a request by a notice alone; its connection must not be held for a server that
        # does not listen.
        with anyio.CancelScope() as scope:
            self._asked[asked] = scope
            try:
                return await self._answer(request, asked)
            except Trouble as trouble:
                return self._told(trouble)
            finally:
                self._asked.pop(asked, None)
        return self._told(Trouble(Kind.LOST, "the request was called off"))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def _abandon(self, asked: Any) -> None:
        if (scope := self._asked.get(asked)) is not None:
            scope.cancel()
        if (stream := self._streams.get(asked)) is not None:
            await stream.aclose()

    async def _noticed(self, request: httpx2.Request, status: int) -> httpx2.Response:
        """What is sent without need of an answer, so that none can be waited for in vain."""
        with suppress(*_BROKEN, Trouble, TimeoutError):
            async with asyncio.timeout(NOTICE_S):
                answer = await self._sent(request)
                await answer.aclose()
        return httpx2.Response(status)

    async def _sent(self, request: httpx2.Request) -> httpcore2.Response:
        """The answer, its body unread. Raises Trouble for a header without a value, and httpcore's errors."""
        headers = httpx2.Headers(request.headers)
        headers.update(await self._headers.now())
        where = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        return await self._pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=where,
                headers=headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )

    async def _answer(self, request: httpx2.Request, asked: Any) -> httpx2.Response:
        """The answer to a request of JSON-RPC. Raises Trouble."""
        try:
            answer = await self._sent(request)
        except AddressRefused as refused:
            raise Trouble(Kind.BLOCKED, str(refused)) from None
        except _NOT_SENT as error:
            raise Trouble(Kind.NOT_SENT, f"no connection, nothing was sent: {error}".rstrip(": ")) from None
        except _BROKEN:
            words = f"the connection was lost, or spoke no HTTP, before an answer; {_UNKNOWN}"
            raise Trouble(Kind.LOST, words) from None
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
        if 300 <= answer.status < 400:
            await answer.aclose()
            raise Trouble(Kind.REFUSED, f"HTTP {answer.status}: redirects are not followed")
        if answer.status >= 400:
            body = await _beginning(answer)
            return self._refused(request, answer.status, headers, body)
        kind = headers.get("content-type", "").lower()
        if headers.get("content-encoding", "identity") != "identity":
            await answer.aclose()
            raise Trouble(Kind.INVALID, "the answer is compressed, which was not asked for")
        if kind.startswith("text/event-stream"):
            stream = self._streams[asked] = _Stream(answer, self._streams, asked)
            return _streamed(request, answer, stream)
        if not kind.startswith("application/json"):
            await answer.aclose()
            return httpx2.Response(answer.status, headers=answer.headers)
        kept: dict[str, str] = {name: headers[name] for name in ("content-type", _SESSION) if name in headers}
        return httpx2.Response(answer.status, headers=kept, content=await _whole(answer))

    def _refused(
        self, request: httpx2.Request, status: int, headers: Mapping[str, str], body: bytes
    ) -> httpx2.Response:
        error = _error_in(body)
        code = error.get("code") if error else None
        said = f"HTTP {status}: {error['message']}" if error else f"HTTP {status}"
        if _SESSION in request.headers and (
            status == 404 or (status == 400 and code not in _ABOUT_THE_REQUEST)
        ):
            raise Trouble(Kind.SESSION_LOST, said)
        if status in _PASSING:
            raise Trouble(Kind.UNAVAILABLE, said)
        if error is None:
            raise Trouble(Kind.REFUSED, said)
        return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)

    def _told(self, trouble: Trouble) -> httpx2.Response:
        data = {self._mark: {"kind": trouble.kind, "words": trouble.words}}
        error = {"code": -32603, "message": "see data", "data": data}
        return httpx2.Response(502, json={"jsonrpc": "2.0", "id": None, "error": error})


class _Stream(httpx2.AsyncByteStream):
    """The body of an event stream, which can be closed while it is read."""

    def __init__(self, answer: httpcore2.Response, streams: dict[Any, _Stream], asked: Any) -> None:
        self._answer = answer
        self._streams = streams
        self._asked = asked

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.aiter_stream():
            yield piece

    async def aclose(self) -> None:
        if self._streams.get(self._asked) is self:
            del self._streams[self._asked]
        await self._answer.aclose()


def _streamed(request: httpx2.Request, answer: httpcore2.Response, stream: _Stream | None) -> httpx2.Response:
    body = stream or _Stream(answer, {}, None)
    return httpx2.Response(answer.status, headers=answer.headers, stream=body, request=request)


async def _whole(answer: httpcore2.Response) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in answer.aiter_stream():
            size += len(piece)
            if size > MAX_BYTES:
                raise Trouble(Kind.TOO_LARGE, f"the answer has more than {MAX_BYTES} bytes")
            pieces.append(piece)
    except _BROKEN:
        words = f"the connection was lost in the middle of the answer; {_UNKNOWN}"
        raise Trouble(Kind.LOST, words) from None
    finally:
        await answer.aclose()
    return b"".join(pieces)


async def _beginning(answer: httpcore2.Response) -> bytes:
    """The body of an error if it is short and comes soon, else some of it."""
    body = b""
    try:
        with suppress(*_BROKEN, TimeoutError):
            async with asyncio.timeout(WORDS_S):
                async for piece in answer.aiter_stream():
                    body += piece
                    if len(body) > WORDS_BYTES:
                        break
    finally:
        await answer.aclose()
    return body


def _error_in(body: bytes) -> Mapping[str, Any] | None:
    """The error of JSON-RPC that a body is, if it is one."""
    try:
        error = json_text.read(body)["error"]
    except (json_text.NotJson, TypeError, KeyError):
        return None
    told = isinstance(error, dict) and isinstance(error.get("code"), int)
    return error if told and isinstance(error.get("message"), str) else None
