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
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import httpx
import yarl

from app.adapters.checked_network import NOT_ADMITTED, CheckedNetwork, Resolve, usual_tls
from app.adapters.http_errors import CLIENT_ERRORS, NotAllowed, true_error

STALE_WITHIN_S: Final = 1.0
"""A kept connection whose peer had gone away fails within a round trip; later, it had taken the request."""

IDLE_S: Final = 30.0
"""How long an unused connection is kept."""

LINGER_S: Final = 0.25
"""How long the formal end of a body may take whose content is complete."""

_HEADERS: Final = {"User-Agent": "branchline", "Accept-Encoding": "identity"}
_BODY: Final = "branchline.body"
_TRUSTED: Final = "branchline.trusted"


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
        limits = {"connect": connect_timeout_s}
        self._extensions = {trusted: {"timeout": limits, _TRUSTED: trusted} for trusted in (False, True)}

    async def open(
        self, url: httpx.URL, headers: Mapping[str, str], content: bytes, *, trusted: bool = False
    ) -> httpx.Response:
        """POST, and give the response when its head has come; to be closed with `aclose()`.

        A `trusted` address is the operator's own choice, and so is reached wherever it is. Everything that
        `send` does beyond this is switched off here, and takes a hundred microseconds. The content is given
        as a stream, for which httpx works out no headers: the transport does.
        """
        request = httpx.Request(
            "POST",
            url,
            headers={**_HEADERS, **headers},
            stream=httpx.ByteStream(content),
            extensions=self._extensions[trusted],
        )
        response = await self._wire.handle_async_request(request)
        response.request = request
        return response


def model_client(
    *,
    connect_timeout_s: float = 10.0,
    tls: ssl.SSLContext | None = None,
    network: CheckedNetwork | None = None,
) -> ModelClient:
    """The client for model servers; close it with `aclose()`.

    `connect_timeout_s` covers name, connection and handshake together. There is no limit on reading: how long
    an answer may take is decided by whoever waits for it, who cancels. `network` says which addresses may be
    connected to, of a request that is not trusted; None leaves it at all of them.
    """
    return ModelClient(_Transport(tls or usual_tls(), network), connect_timeout_s)


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

    def __init__(self, tls: ssl.SSLContext, network: CheckedNetwork | None) -> None:
        self._tls = tls
        self._network = network
        self._sessions: dict[tuple[bool, bool], aiohttp.ClientSession] = {}
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
        # Apart from each other: a trusted request's connection is no way around the check.
        trusted = request.extensions.get(_TRUSTED, False)
        return await self._session(keep, trusted).request(
            request.method,
            yarl.URL(str(request.url), encoded=True),
            headers=[(name.decode("ascii"), value.decode("latin-1")) for name, value in request.headers.raw],
            data=content or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(connect=limits.get("connect"), sock_read=limits.get("read")),
            trace_request_ctx=facts,
        )

    def _session(self, keep: bool, trusted: bool) -> aiohttp.ClientSession:
        """The session that keeps its connections, or the one that opens a new one each time."""
        session = self._sessions.get((keep, trusted))
        if session is None:
            session = aiohttp.ClientSession(
                connector=self._connector(keep, trusted),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[_reuse_trace()],
                trust_env=False,
            )
            # Or aiohttp repeats GET, PUT and DELETE by itself, also when they were sent. Not a public switch.
            session._retry_connection = False
            self._sessions[keep, trusted] = session
        return session

    def _connector(self, keep: bool, trusted: bool) -> aiohttp.TCPConnector:
        options: dict[str, Any] = {"keepalive_timeout": IDLE_S} if keep else {"force_close": True}
        if trusted or self._network is None:
            return aiohttp.TCPConnector(limit=0, ssl=self._tls, **options)
        return _CheckedConnector(self._network, limit=0, ssl=self._tls, **options)


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


class _CheckedConnector(aiohttp.TCPConnector):
    """Connects to the addresses of a host that may be reached, and to no others."""

    def __init__(self, network: CheckedNetwork, **options: Any) -> None:
        super().__init__(resolver=_Resolver(network.resolve), **options)
        self._admits = network.admits

    async def _resolve_host(
        self, host: str, port: int, traces: Any = None
    ) -> list[aiohttp.abc.ResolveResult]:
        # Not a public place, but the only one that all hosts pass, also those that are written as an
        # address; what it returns is what is dialled.
        found = await super()._resolve_host(host, port, traces)
        admitted = [one for one in found if self._admits(host, one["host"])]
        if not admitted:
            raise NotAllowed(NOT_ADMITTED)
        return admitted


class _Resolver(aiohttp.abc.AbstractResolver):
    """A resolver of ours as aiohttp asks it."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[aiohttp.abc.ResolveResult]:
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for address in await self._resolve(host, port)
        ]

    async def close(self) -> None:
        """There is nothing to close."""
