"""The HTTP client that talks to model servers, with errors that say what really happened.

It is `httpx` on top, so that callers see one well-known interface, and `aiohttp` below, which costs a third
of the CPU of httpx's own transport. The errors are those of `http_errors`.

Redirects are not followed, cookies are not kept, the environment's proxies are not used and nothing is sent
twice, with one exception: see `_Transport`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import httpx
import yarl

from app.adapters.http_errors import CLIENT_ERRORS, NotAllowed, true_error

STALE_WITHIN_S: Final = 1.0
"""A kept connection whose peer had gone away fails within a round trip; later, it had taken the request."""

IDLE_S: Final = 30.0
"""How long an unused connection is kept."""

LINGER_S: Final = 0.25
"""How long the formal end of a body may take whose content is complete."""

_HEADERS: Final = {"User-Agent": "branchline", "Accept-Encoding": "identity"}
_BODY: Final = "branchline.body"


class ModelClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` with a short way for the one kind of request that has to be cheap."""

    def __init__(self, transport: httpx.AsyncBaseTransport, connect_timeout_s: float) -> None:
        """Close it with `aclose()`."""
        super().__init__(
            transport=transport,
            timeout=httpx.Timeout(None, connect=connect_timeout_s),
            headers=_HEADERS,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
            trust_env=False,
        )
        self._wire = transport
        self._limits = {"timeout": {"connect": connect_timeout_s}}

    async def open(self, url: httpx.URL, headers: Mapping[str, str], content: bytes) -> httpx.Response:
        """POST, and give the response when its head has come; to be closed with `aclose()`.

        Everything that `send` does beyond this is switched off here, and takes a hundred microseconds.
        """
        request = httpx.Request(
            "POST", url, headers={**_HEADERS, **headers}, content=content, extensions=self._limits
        )
        response = await self._wire.handle_async_request(request)
        response.request = request
        return response


def model_client(
    *,
    connect_timeout_s: float = 10.0,
    tls: ssl.SSLContext | None = None,
    may_connect: Callable[[str], bool] | None = None,
) -> ModelClient:
    """The client for model servers; close it with `aclose()`.

    `connect_timeout_s` covers name, connection and handshake together. There is no limit on reading: how long
    an answer may take is decided by whoever waits for it, who cancels. `may_connect` is asked with each
    address (IPv4 or IPv6, as text) right before it is dialled.
    """
    return ModelClient(_Transport(tls or httpx.create_ssl_context(), may_connect), connect_timeout_s)


async def read(response: httpx.Response) -> bytes:
    """What has come of the body since the last read, waiting for some; empty at its end.

    Only for responses of `model_client`, opened with `stream=True`; cheaper than httpx's iterators, and a
    wait that is cancelled leaves no generator behind. Raises the errors of `http_errors`.
    """
    body: _Body = response.extensions[_BODY]
    return await body.read()


def let_end(response: httpx.Response) -> None:
    """Note that the rest of the body is of no interest, but for its end.

    Closing the response then does not wait, and does not close the connection at once: when the body ends
    within a moment, as it should, the connection is kept for another request.
    """
    body: _Body = response.extensions[_BODY]
    body.may_linger = True


class _Transport(httpx.AsyncBaseTransport):
    """Send requests through aiohttp.

    Connections are kept, for a new TLS connection costs two round trips and some milliseconds. A peer may
    close a kept connection in the moment in which we use it. HTTP cannot tell whether it took the request,
    but when the connection had been used before, not a byte of an answer came and it failed at once, then it
    was the idle connection that ended and not an answer; such a request is sent once more, on a new
    connection. The most that this can cost is a generation that nobody reads.
    """

    def __init__(self, tls: ssl.SSLContext, may_connect: Callable[[str], bool] | None) -> None:
        self._tls = tls
        self._socket_factory = None if may_connect is None else _guarded(may_connect)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._lingering: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        loop = asyncio.get_running_loop()
        facts = SimpleNamespace(reused=False)
        sent_at = loop.time()
        try:
            try:
                answer = await self._send(request, content, facts, keep=True)
            except aiohttp.ClientConnectionError as error:
                if not facts.reused or not _lost(error) or loop.time() - sent_at > STALE_WITHIN_S:
                    raise
                answer = await self._send(request, content, facts, keep=False)
        except CLIENT_ERRORS as error:
            raise true_error(error, request) from error
        body = _Body(answer, request, self._lingering)
        return httpx.Response(
            answer.status,
            headers=_headers(answer),
            stream=body,
            extensions={"http_version": b"HTTP/1.1", _BODY: body},
        )

    async def aclose(self) -> None:
        for task in self._lingering:
            task.cancel()
        await asyncio.gather(*self._lingering, return_exceptions=True)
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def _send(
        self, request: httpx.Request, content: bytes, facts: SimpleNamespace, *, keep: bool
    ) -> aiohttp.ClientResponse:
        limits: dict[str, float | None] = request.extensions.get("timeout", {})
        return await self._session(keep).request(
            request.method,
            yarl.URL(str(request.url), encoded=True),
            headers=[(name.decode("ascii"), value.decode("latin-1")) for name, value in request.headers.raw],
            data=content or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(connect=limits.get("connect"), sock_read=limits.get("read")),
            trace_request_ctx=facts,
        )

    def _session(self, keep: bool) -> aiohttp.ClientSession:
        """The session that keeps its connections, or the one that opens a new one each time."""
        session = self._sessions.get(keep)
        if session is None:
            options: dict[str, Any] = {"keepalive_timeout": IDLE_S} if keep else {"force_close": True}
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, ssl=self._tls, socket_factory=self._socket_factory, **options
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[_reuse_trace()],
                trust_env=False,
            )
            # Or aiohttp repeats GET, PUT and DELETE by itself, also when they were sent. Not a public switch.
            session._retry_connection = False
            self._sessions[keep] = session
        return session


class _Body(httpx.AsyncByteStream):
    """The body of one answer."""

    def __init__(
        self, answer: aiohttp.ClientResponse, request: httpx.Request, lingering: set[asyncio.Task[None]]
    ) -> None:
        self.may_linger = False
        self._answer = answer
        self._request = request
        self._lingering = lingering
        self._protocol = None if answer.connection is None else answer.connection.protocol
        self._framed = "Content-Length" in answer.headers or "Transfer-Encoding" in answer.headers

    async def read(self) -> bytes:
        try:
            piece = await self._answer.content.readany()
        except CLIENT_ERRORS as error:
            raise true_error(self._loss() or error, self._request) from error
        if not piece and not self._framed and isinstance(loss := self._loss(), aiohttp.ClientOSError):
            # A body that ends with its connection: aiohttp takes a reset for its regular end.
            raise true_error(loss, self._request) from loss
        return piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.read():
            yield piece

    def _loss(self) -> aiohttp.ClientConnectionError | None:
        """How the connection ended, which aiohttp keeps apart from how the body did."""
        # Compared with None: a protocol is a queue, and false when empty.
        error = None if self._protocol is None else self._protocol.exception()
        return error if isinstance(error, aiohttp.ClientConnectionError) else None

    async def aclose(self) -> None:
        """Give the connection back when the body has been received; else close it, at once."""
        if self.may_linger and not self._answer.closed:
            task = asyncio.create_task(self._linger())
            self._lingering.add(task)
            task.add_done_callback(self._lingered)
        else:
            self._answer.close()

    async def _linger(self) -> None:
        with suppress(*CLIENT_ERRORS):
            async with asyncio.timeout(LINGER_S):
                await self._answer.content.readany()

    def _lingered(self, task: asyncio.Task[None]) -> None:
        # Here and not in the task, which may be cancelled before its first step.
        self._lingering.discard(task)
        self._answer.close()


def _lost(error: aiohttp.ClientConnectionError) -> bool:
    """Whether a connection that had been made was lost before anything of an answer came."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)  # else it holds the part of the answer that did come
    return not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError)


def _headers(answer: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """The headers that describe the body as `_Body` gives it, which is uncompressed."""
    if "Content-Encoding" not in answer.headers:
        return list(answer.raw_headers)
    encoded = (b"content-encoding", b"content-length")
    return [(name, value) for name, value in answer.raw_headers if name.lower() not in encoded]


def _reuse_trace() -> aiohttp.TraceConfig:
    async def reused(_session: object, context: SimpleNamespace, _params: object) -> None:
        context.trace_request_ctx.reused = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(reused)
    return trace


def _guarded(may_connect: Callable[[str], bool]) -> Callable[[aiohttp.AddrInfoType], socket.socket]:
    def make_socket(address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, where = address
        if not may_connect(str(where[0])):
            # The same words for every address of a host, or aiohttp makes one error of another class of them.
            raise NotAllowed("the address is one that may not be connected to")
        return socket.socket(family, kind, protocol)

    return make_socket
