"""The server at the level of bytes: heads without end, clients that do not read, what is no HTTP."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import orjson
import pytest

from app import server
from app.server import HEAD_BYTES, UNREAD_S, bound
from app.settings import Settings
from tests.support.fuzzed_runs import nothing_breaks
from tests.support.polling import until
from tests.support.service import Service

pytestmark = pytest.mark.anyio


async def answer_to(service: Service, *pieces: bytes) -> tuple[int, dict[str, Any]]:
    """Status and JSON body of the answer to raw bytes; the server closes the connection."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # refused before all of it was sent
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    return int(head.split(b" ", 2)[1]), orjson.loads(body)


async def test_what_is_no_http_is_a_problem(service: Service) -> None:
    status, problem = await answer_to(service, b"HELO there\r\n\r\n")
    assert (status, problem["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("complete", [True, False])
async def test_a_head_without_end_is_refused(service: Service, complete: bool) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: " + service.url.removeprefix("http://").encode() + b"\r\nX-Big: "
    rest = [b"x" * HEAD_BYTES * 2, b"\r\n\r\n"] if complete else [b"x" * HEAD_BYTES] * 4
    status, problem = await answer_to(service, head, *rest)
    assert (status, problem["code"]) == (431, "headers_too_large")
    assert (await service.http.get(problem["type"])).json()["status"] == 431


async def test_what_turns_out_to_be_no_http_is_answered_once(service: Service) -> None:
    """The head can be read, and its own words say that nobody can tell where the body ends."""
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: 9\r\n\r\n"
    with nothing_breaks():
        status, problem = await answer_to(service, head)
    assert (status, problem["code"]) == (400, "malformed_request")


async def test_a_usual_head_with_a_large_body_passes(service: Service) -> None:
    answer = await service.http.post("/v1/branches", json={"name": "n", "system": "x" * 300_000})
    assert answer.status_code == 201


async def test_who_says_nothing_is_not_waited_for(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.01)
    host, _, port = service.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await reader.read() == b""
    writer.close()


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux ends connections that nobody reads"
)
def test_connections_inherit_an_end_to_what_nobody_reads() -> None:
    with bound(Settings(port=0)) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNREAD_S * 1000


async def test_a_client_that_goes_away_without_reading_leaves_nothing(service: Service) -> None:
    words = [{"text": "x" * 10_000} for _ in range(300)]
    branch = await service.branch(chat_model=await service.scripted("long", [*words, {"end": "stop"}]))
    run = await service.operate(branch)
    before = len(asyncio.all_tasks())
    host, _, port = service.url.removeprefix("http://").partition(":")
    for _ in range(5):
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(
            f"GET /v1/runs/{run['id']}/events HTTP/1.1\r\nHost: {host}:{port}\r\n"
            "Accept: text/event-stream\r\n\r\n".encode()
        )
        await writer.drain()
        writer.transport.abort()
    await until(lambda: len(asyncio.all_tasks()) <= before)
