"""Posting to addresses that clients chose: what is an answer, and where nothing is ever sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from app.adapters.checked_network import CheckedNetwork
from app.adapters.webhook_client import BODY_BYTES, WebhookClient
from app.core.addresses import AddressRule
from app.core.webhooks import Answer
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.receiver import Receiver, Reply

pytestmark = pytest.mark.anyio

BODY = b'{"model": "m"}'
"""The model server chooses its script by this."""


@asynccontextmanager
async def client(
    may_reach: Callable[[str, str], bool] = lambda host, address: True, timeout_s: float = 10
) -> AsyncIterator[WebhookClient]:
    made = WebhookClient(CheckedNetwork(may_reach), timeout_s=timeout_s)
    yield made
    await made.aclose()


async def answer_of(attempt: Attempt, timeout_s: float = 10) -> Answer:
    async with ModelServer({"m": [attempt]}) as server, client(timeout_s=timeout_s) as posting:
        return await posting.post(server.base_url, {}, BODY)


async def test_a_post_is_one_request_with_its_headers_and_body() -> None:
    async with Receiver() as receiver, client() as posting:
        url = receiver.url("/in?team=1")
        assert await posting.post(url, {"webhook-id": "msg_1"}, b'{"a":1}') == Answer(200)
        (request,) = receiver.received
        assert (request.body, request.headers["webhook-id"]) == (b'{"a":1}', "msg_1")
        assert request.headers["content-type"] == "application/json"
        assert request.headers["host"] == url.removeprefix("http://").partition("/")[0]
        assert "cookie" not in request.headers


async def test_redirects_are_not_followed_and_cookies_not_kept() -> None:
    async with Receiver() as receiver, client() as posting:
        receiver.replies["/in"] = [
            Reply(302, {"Location": receiver.url("/there"), "Set-Cookie": "a=b"}),
            Reply(200),
        ]
        answer = await posting.post(receiver.url("/in"), {}, b"{}")
        assert (answer.status, answer.error) == (302, "HTTP 302: redirects are not followed")
        await posting.post(receiver.url("/in"), {}, b"{}")
        assert [request.path for request in receiver.received] == ["/in", "/in"]
        assert "cookie" not in receiver.received[1].headers


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7_000),
        (
            {"Date": "Mon, 30 Nov 2026 12:00:00 GMT", "Retry-After": "Mon, 30 Nov 2026 12:01:00 GMT"},
            60_000,
        ),
        ({"Retry-After": "soon"}, None),
    ],
)
async def test_a_pause_that_is_asked_for_is_passed_on(headers: dict[str, str], expected: int | None) -> None:
    async with Receiver() as receiver, client() as posting:
        receiver.replies["/in"] = [Reply(503, headers)]
        answer = await posting.post(receiver.url("/in"), {}, b"{}")
        assert answer == Answer(503, "HTTP 503", expected)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        pytest.param(Attempt(head=b""), "disconnected", id="closed before an answer"),
        pytest.param(Attempt(head=b"", chunks=[0.01], then="reset"), "ReadError", id="reset"),
        pytest.param(Attempt(head=b"HELLO\r\n\r\n"), "RemoteProtocolError", id="no HTTP"),
    ],
)
async def test_what_is_no_answer_says_why(attempt: Attempt, words: str) -> None:
    answer = await answer_of(attempt)
    assert answer.status is None
    assert words in str(answer.error)


async def test_silence_ends_in_time() -> None:
    assert await answer_of(Attempt(head=b"", then="hang"), timeout_s=0.05) == Answer(
        None, "no answer in time"
    )


async def test_nobody_listens() -> None:
    async with ModelServer() as server:
        url = server.base_url
    async with client() as posting:
        answer = await posting.post(url, {}, b"{}")
    assert answer.status is None
    assert "ConnectError" in str(answer.error)


async def test_a_name_that_cannot_have_an_address() -> None:
    async with client() as posting:
        answer = await posting.post("http://" + "x" * 70 + ".example/", {}, b"{}")
    assert "no address" in str(answer.error)


async def test_no_tls_where_tls_is_expected() -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server, client() as posting:
        port = server.sockets[0].getsockname()[1]
        answer = await posting.post(f"https://127.0.0.1:{port}/", {}, BODY)
    assert (answer.status, "SSL" in str(answer.error)) == (None, True)


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(Attempt([b"x" * (BODY_BYTES + 1), 30.0], framing="chunked", then="keep"), id="long"),
        pytest.param(Attempt([b"x", 30.0], framing="chunked", then="keep"), id="slow"),
        pytest.param(Attempt([b"x"], framing="length", cut=True, then="reset"), id="broken"),
    ],
)
async def test_the_head_is_the_answer_whatever_becomes_of_the_body(attempt: Attempt) -> None:
    # Were the body waited for, the answer would be that none came in time.
    assert (await answer_of(attempt)).delivered


async def test_a_connection_is_used_again_after_a_short_answer() -> None:
    short = Attempt([b"ok"], framing="length", then="keep")
    async with ModelServer({"m": [short]}) as server, client() as posting:
        for _ in range(3):
            assert (await posting.post(server.base_url, {}, BODY)).delivered
        assert server.connections == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_host_that_may_not_be_reached_is_not_connected_to(host: str) -> None:
    async with ModelServer() as server, client(AddressRule().admits) as posting:
        url = f"http://{host}:{server.port}/"
        answer = await posting.post(url, {}, BODY)
        assert (answer.status, "may not be reached" in str(answer.error)) == (None, True)
        assert server.connections == 0


async def test_what_a_name_is_resolved_to_decides_not_the_name() -> None:
    asked: list[tuple[str, str]] = []

    def never(host: str, address: str) -> bool:
        asked.append((host, address))
        return False

    async with client(never) as posting:
        await posting.post("http://localhost:1/", {}, BODY)
    assert asked
    assert {host for host, _ in asked} == {"localhost"}
    assert {address for _, address in asked} <= {"127.0.0.1", "::1"}


async def test_of_several_addresses_only_those_that_are_allowed_are_tried() -> None:
    def only_ours(host: str, address: str) -> bool:
        return address == "127.0.0.1"

    async with ModelServer({"m": [Attempt(status=204)]}) as server, client(only_ours) as posting:
        assert (await posting.post(f"http://localhost:{server.port}/", {}, BODY)).status == 204


@pytest.mark.parametrize(
    ("host", "address", "allowed", "expected"),
    [
        ("hooks.example", "93.184.215.14", (), True),
        ("hooks.example", "10.0.0.1", (), False),
        ("hooks.example", "169.254.169.254", (), False),
        ("hooks.example", "::ffff:127.0.0.1", (), False),
        ("hooks.example", "10.0.0.1", ("hooks.example",), True),
        ("hooks.example", "10.0.0.1", ("10.0.0.0/8",), True),
        ("hooks.example", "10.0.0.1", ("other.example", "192.168.0.0/16"), False),
        ("127.0.0.1", "127.0.0.1", ("127.0.0.1",), True),
    ],
)
def test_the_rule_for_a_resolved_address(
    host: str, address: str, allowed: tuple[str, ...], expected: bool
) -> None:
    assert AddressRule(allowed=allowed).admits(host, address) is expected


async def test_many_posts_at_once() -> None:
    release = asyncio.Event()
    async with Receiver() as receiver, client() as posting:
        receiver.replies["/in"] = [Reply(after=release)]
        posts = [asyncio.create_task(posting.post(receiver.url("/in"), {}, b"{}")) for _ in range(32)]
        await until(lambda: receiver.open == 32)
        release.set()
        assert {(await post).status for post in posts} == {200}
