"""The client tells what really happened on the connection, and sends nothing twice without need."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator

import aiohttp
import httpx
import pytest

from app.adapters import http_client
from app.adapters.checked_network import CheckedNetwork
from app.adapters.http_client import let_end, model_client, read
from app.adapters.http_errors import AddressRefused, Disconnected, DnsError, TlsError, true_error
from app.core.addresses import AddressRule
from tests.support.model_server import Attempt, ModelServer
from tests.support.network import ANYWHERE
from tests.support.polling import until

pytestmark = pytest.mark.anyio

KEPT = Attempt([b"a"], framing="length", then="keep")
PAUSE = 0.02
"""So that what was written before is read before what follows."""


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with model_client(connect_timeout_s=5) as client:
        yield client


async def fetch(client: httpx.AsyncClient, url: str, method: str = "POST") -> tuple[httpx.Response, bytes]:
    """The response and its whole body."""
    request = client.build_request(method, url, json={"model": "m"})
    response = await client.send(request, stream=True)
    try:
        body = b""
        while piece := await read(response):
            body += piece
        return response, body
    finally:
        await response.aclose()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        pytest.param(Attempt(head=b""), Disconnected, id="closed before an answer"),
        pytest.param(
            Attempt(head=b"", chunks=[PAUSE], then="reset"), httpx.ReadError, id="reset before an answer"
        ),
        pytest.param(
            Attempt(head=b"HTTP/1.1 200 OK\r\nX-A: b\r\n"), Disconnected, id="closed in the headers"
        ),
        pytest.param(Attempt([b"a", PAUSE], then="reset"), httpx.ReadError, id="reset, body without a frame"),
        pytest.param(
            Attempt([b"a", PAUSE], framing="chunked", then="reset"), httpx.ReadError, id="reset, chunked"
        ),
        pytest.param(
            Attempt([b"a", PAUSE], framing="length", cut=True, then="reset"),
            httpx.ReadError,
            id="reset, length",
        ),
        pytest.param(Attempt([b"a", PAUSE], framing="chunked", cut=True), Disconnected, id="closed, chunked"),
        pytest.param(Attempt([b"a", PAUSE], framing="length", cut=True), Disconnected, id="closed, length"),
        pytest.param(Attempt(head=b"HELLO\r\n\r\n"), httpx.RemoteProtocolError, id="no status line"),
        pytest.param(
            Attempt([b"zzz\r\n"], head=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            httpx.RemoteProtocolError,
            id="no chunk size",
        ),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_what_happened(
    client: httpx.AsyncClient, attempt: Attempt, error: type[httpx.TransportError], method: str
) -> None:
    async with ModelServer({"m": [attempt]}) as server:
        with pytest.raises(httpx.TransportError) as caught:
            await fetch(client, server.base_url, method)
        assert type(caught.value) is error
        assert len(server.requests) == 1


async def test_nobody_listens(client: httpx.AsyncClient) -> None:
    with pytest.raises(httpx.TransportError) as caught:
        await fetch(client, f"http://127.0.0.1:{unused_port()}/")
    assert type(caught.value) is httpx.ConnectError


async def test_no_tls_where_tls_is_expected(client: httpx.AsyncClient) -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TlsError):
            await fetch(client, f"https://127.0.0.1:{port}/")


async def test_a_handshake_that_is_not_answered_ends_in_time() -> None:
    async with ModelServer() as server, model_client(connect_timeout_s=0.05) as client:
        with pytest.raises(httpx.TransportError) as caught:
            await fetch(client, f"https://127.0.0.1:{server.port}/")
        assert type(caught.value) is httpx.ConnectTimeout


@pytest.mark.parametrize(
    ("seen", "true"),
    [
        (lambda key: aiohttp.ClientConnectorDNSError(key, OSError(-2, "unknown")), DnsError),
        (lambda _: UnicodeError("label too long"), DnsError),
        (lambda key: aiohttp.ClientConnectorCertificateError(key, ValueError("bad")), TlsError),
        (lambda key: aiohttp.ClientConnectorError(key, OSError(113, "no route")), httpx.ConnectError),
        (lambda _: aiohttp.ConnectionTimeoutError(), httpx.ConnectTimeout),
        (lambda _: aiohttp.SocketTimeoutError(), httpx.ReadTimeout),
        (lambda _: aiohttp.ClientConnectionResetError("gone"), httpx.ReadError),
        (lambda _: aiohttp.InvalidURL("x:/"), httpx.LocalProtocolError),
        (lambda _: ConnectionAbortedError(), httpx.ReadError),
    ],
)
async def test_what_loopback_cannot_show(seen: object, true: type[httpx.TransportError]) -> None:
    key = aiohttp.client_reqrep.ConnectionKey("h", 1, False, True, None, None, None)
    assert callable(seen)
    assert type(true_error(seen(key), httpx.Request("POST", "http://h"))) is true


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_addresses_are_asked_for_permission_before_they_are_dialled(host: str) -> None:
    asked: list[str] = []

    def nobody(host_asked: str, address: str) -> bool:
        assert host_asked == host
        asked.append(address)
        return False

    async with (
        ModelServer({"m": [Attempt()]}) as server,
        model_client(network=CheckedNetwork(nobody)) as client,
    ):
        with pytest.raises(AddressRefused):
            await fetch(client, f"http://{host}:{server.port}/")
        assert (server.connections, set(asked) <= {"127.0.0.1", "::1"}, bool(asked)) == (0, True, True)
    async with (
        ModelServer({"m": [Attempt([b"a"])]}) as server,
        model_client(network=ANYWHERE) as client,
    ):
        assert (await fetch(client, server.base_url))[1] == b"a"


async def by_name(host: str, port: int) -> list[str]:
    """The resolver of the tests: every name is this machine, also those that nobody else knows."""
    return [host if ":" in host or host[0].isdigit() else "127.0.0.1"]


async def test_a_host_is_known_by_its_name_and_checked_by_its_address() -> None:
    rule = AddressRule(allowed=("models.test",))
    network = CheckedNetwork(rule.admits, resolve=by_name)
    async with ModelServer({"m": [KEPT]}) as server, model_client(network=network) as client:
        assert (await fetch(client, f"http://models.test:{server.port}/"))[1] == b"a"
        for host in ("others.test", "127.0.0.1", "[::ffff:127.0.0.1]"):
            with pytest.raises(AddressRefused, match="may not be reached"):
                await fetch(client, f"http://{host}:{server.port}/")
        assert (server.connections, len(server.requests)) == (1, 1)


async def test_an_address_of_the_operators_is_reached_and_opens_no_way_for_others() -> None:
    network = CheckedNetwork(AddressRule().admits, resolve=by_name)
    async with ModelServer({"m": [KEPT]}) as server, model_client(network=network) as client:
        url = httpx.URL(f"http://localhost:{server.port}/")
        ours = await client.open(url, {}, b'{"model": "m"}', trusted=True)
        assert await read(ours) == b"a"
        await ours.aclose()
        with pytest.raises(AddressRefused):
            await client.open(url, {}, b'{"model": "m"}')
        assert (server.connections, len(server.requests)) == (1, 1)


async def test_redirects_are_answers_and_cookies_are_forgotten(client: httpx.AsyncClient) -> None:
    moved = Attempt(status=307, headers={"Location": "/elsewhere", "Set-Cookie": "a=b; Path=/"})
    async with ModelServer({"m": [moved]}) as server:
        for _ in range(2):  # by name: cookie jars distrust addresses anyway
            assert (await fetch(client, f"http://localhost:{server.port}/v1"))[0].status_code == 307
        seen = [(request.path, "cookie" in request.headers) for request in server.requests]
        assert seen == [("/v1", False)] * 2


async def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_port()}")
    async with ModelServer({"m": [Attempt([b"a"])]}) as server, model_client() as client:
        assert (await fetch(client, server.base_url))[1] == b"a"


async def test_a_body_comes_uncompressed_although_nobody_asked_for_compression(
    client: httpx.AsyncClient,
) -> None:
    packed = Attempt([gzip.compress(b"hello " * 100)], headers={"Content-Encoding": "gzip"}, framing="length")
    async with ModelServer({"m": [packed]}) as server:
        response, body = await fetch(client, server.base_url)
        assert body == b"hello " * 100
        assert "content-encoding" not in response.headers
        assert server.requests[0].headers["accept-encoding"] == "identity"
        assert (await client.post(server.base_url, json={"model": "m"})).text == "hello " * 100


async def test_connections_are_kept(client: httpx.AsyncClient) -> None:
    async with ModelServer({"m": [KEPT]}) as server:
        for _ in range(3):
            await fetch(client, server.base_url)
        assert (server.connections, len(server.requests)) == (1, 3)


@pytest.mark.parametrize(
    "gone", [Attempt(head=b""), Attempt(head=b"", then="reset")], ids=["closed", "reset"]
)
async def test_a_kept_connection_that_has_gone_stale_fails_no_request(
    client: httpx.AsyncClient, gone: Attempt
) -> None:
    async with ModelServer({"m": [KEPT, gone, KEPT]}) as server:
        await fetch(client, server.base_url)
        assert (await fetch(client, server.base_url))[1] == b"a"
        assert (server.connections, len(server.requests)) == (2, 3)


async def test_it_is_tried_once_more_and_no_more(client: httpx.AsyncClient) -> None:
    async with ModelServer({"m": [KEPT, Attempt(head=b"")]}) as server:
        await fetch(client, server.base_url)
        with pytest.raises(Disconnected):
            await fetch(client, server.base_url)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "attempt",
    [Attempt(head=b"HTTP/1.1 200 OK\r\nX-A: b\r\n"), Attempt([b"a", PAUSE], framing="chunked", cut=True)],
    ids=["in the headers", "in the body"],
)
async def test_nothing_is_sent_again_once_an_answer_began(
    client: httpx.AsyncClient, attempt: Attempt
) -> None:
    async with ModelServer({"m": [KEPT, attempt]}) as server:
        await fetch(client, server.base_url)
        with pytest.raises(Disconnected):
            await fetch(client, server.base_url)
        assert len(server.requests) == 2


async def test_nothing_is_sent_again_where_the_server_had_time_to_take_the_request(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "STALE_WITHIN_S", -1.0)
    async with ModelServer({"m": [KEPT, Attempt(head=b"")]}) as server:
        await fetch(client, server.base_url)
        with pytest.raises(Disconnected):
            await fetch(client, server.base_url)
        assert len(server.requests) == 2


@pytest.mark.parametrize("complete", [True, False], ids=["complete", "not complete"])
async def test_leaving_early_closes_the_connection(client: httpx.AsyncClient, complete: bool) -> None:
    async with ModelServer({"m": [Attempt([b"a"], framing="chunked", then="hang")]}) as server:
        response = await client.send(
            client.build_request("POST", server.base_url, json={"model": "m"}), stream=True
        )
        assert await read(response) == b"a"
        if complete:
            let_end(response)
        await response.aclose()
        await until(lambda: server.left_early)


async def test_a_connection_is_kept_whose_answer_ends_a_moment_after_its_content(
    client: httpx.AsyncClient,
) -> None:
    late = Attempt([b"a", PAUSE], framing="chunked", then="keep")
    async with ModelServer({"m": [late]}) as server:
        for _ in range(3):
            response = await client.send(
                client.build_request("POST", server.base_url, json={"model": "m"}), stream=True
            )
            assert await read(response) == b"a"
            let_end(response)
            await response.aclose()
            await until(lambda: server.answered == len(server.requests))
        assert server.connections == 1


async def test_a_cancelled_wait_closes_the_connection(client: httpx.AsyncClient) -> None:
    async with ModelServer({"m": [Attempt(open_wait_s=60)]}) as server:
        waiting = asyncio.create_task(fetch(client, server.base_url))
        await until(lambda: server.requests)
        waiting.cancel()
        await asyncio.wait([waiting])
        await until(lambda: server.left_early)


async def test_closing_the_client_leaves_nothing_behind() -> None:
    async with ModelServer({"m": [Attempt([b"a"], framing="chunked", then="hang")]}) as server:
        before = asyncio.all_tasks()
        async with model_client() as client:
            response = await client.send(
                client.build_request("POST", server.base_url, json={"model": "m"}), stream=True
            )
            assert await read(response) == b"a"
            let_end(response)
            await response.aclose()
        await until(lambda: server.left_early)
        await until(lambda: asyncio.all_tasks() <= before)
