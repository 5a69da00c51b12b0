"""When a call over HTTP is sent again: never where that could do something twice that may not be."""

from __future__ import annotations

import asyncio
import socket

import pytest

from app.core.http_tool import MOST_PAUSE_MS, TRIES
from tests.support.http_tools import CALL, SILENCE, failure, full, gives, post, tools
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until

pytestmark = pytest.mark.anyio

RESET = Attempt(head=b"", chunks=[0.01], then="reset")
HALF = Attempt([b'{"a"', 0.01], framing="length", cut=True, then="reset")
BUSY = gives(b'{"error": "busy"}', 503)
PASSING = {
    "reset before the answer": (RESET, "OUTCOME_UNKNOWN"),
    "closed before the answer": (Attempt(head=b""), "OUTCOME_UNKNOWN"),
    "reset in the middle": (HALF, "CONNECTION_LOST"),
    "busy": (BUSY, "HTTP_ERROR"),
    "too many": (gives(b"", 429), "HTTP_ERROR"),
    "bad gateway": (gives(b"", 502), "HTTP_ERROR"),
    "silent": (SILENCE, "TIMEOUT"),
}
FINAL = {
    "boom": (gives(b"", 500), "HTTP_ERROR"),
    "not allowed": (gives(b"", 403), "HTTP_ERROR"),
    "no JSON": (gives(b"<html>"), "INVALID_RESPONSE"),
    "elsewhere": (gives(b"", 307, headers={"Location": "/"}), "BLOCKED_ADDRESS"),
}


@pytest.mark.parametrize("way", PASSING)
async def test_a_tool_that_is_not_idempotent_is_called_once(way: str) -> None:
    attempt, type = PASSING[way]
    async with ModelServer({"": [attempt, gives(b"1")]}) as server, tools() as runner:
        told = await failure(runner, server.base_url, first_byte_ms=100)
        assert (told.type, len(server.requests)) == (type, 1)
        assert "tries" not in told.message


@pytest.mark.parametrize("way", PASSING)
async def test_an_idempotent_one_is_called_again_with_the_same_key(way: str) -> None:
    attempt, _ = PASSING[way]
    async with ModelServer({"": [attempt, attempt, gives(b"1")]}) as server, tools() as runner:
        assert await post(runner, server.base_url, idempotent=True, first_byte_ms=100) == 1
        assert len(server.requests) == TRIES == 3
        assert {request.headers["idempotency-key"] for request in server.requests} == {str(CALL)}
        assert len({str(request.body) for request in server.requests}) == 1


@pytest.mark.parametrize("way", PASSING)
@pytest.mark.parametrize("tries", [1, 2])
async def test_but_not_more_often_than_it_says(way: str, tries: int) -> None:
    attempt, type = PASSING[way]
    async with ModelServer({"": [attempt]}) as server, tools() as runner:
        told = await failure(runner, server.base_url, idempotent=True, tries=tries, first_byte_ms=100)
        assert (told.type, len(server.requests)) == (type, tries)
        assert told.message.endswith("(after 2 tries)") is (tries == 2)


@pytest.mark.parametrize("way", FINAL)
async def test_what_is_an_answer_is_not_asked_for_again(way: str) -> None:
    attempt, type = FINAL[way]
    async with ModelServer({"": [attempt, gives(b"1")]}) as server, tools() as runner:
        told = await failure(runner, server.base_url, idempotent=True)
        assert (told.type, told.retryable, len(server.requests)) == (type, False, 1)


async def test_what_was_never_sent_is_sent_again_whatever_the_tool() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens yet
        port = int(bound.getsockname()[1])
        url = f"http://127.0.0.1:{port}/"
        async with tools() as runner:
            told = await failure(runner, url)
    assert (told.type, told.retryable) == ("CONNECTION_FAILED", True)
    assert "nothing was sent" in told.message
    assert told.message.endswith(f"(after {TRIES} tries)")


async def test_a_tool_that_comes_up_in_between_is_reached() -> None:
    dialled = []

    def noting(host: str, address: str) -> bool:
        dialled.append(address)
        return True

    async with ModelServer() as gone:
        port = gone.port
    async with tools(noting) as runner:
        call = asyncio.create_task(post(runner, f"http://127.0.0.1:{port}/", tries=5))
        await until(lambda: bool(dialled))
        async with await asyncio.start_server(_answers_one, "127.0.0.1", port):
            assert await call == 1
    assert len(dialled) > 1


async def _answers_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1")
    writer.close()


async def test_a_server_that_takes_no_connection_has_been_sent_nothing() -> None:
    with full() as port:
        async with tools() as runner:
            told = await failure(runner, f"http://127.0.0.1:{port}/", connect_ms=50, tries=2)
            total = await failure(runner, f"http://127.0.0.1:{port}/", connect_ms=5_000, total_ms=60)
    assert (told.type, told.retryable) == (total.type, total.retryable) == ("TIMEOUT", True)
    assert told.message == "no connection within 50 ms; nothing was sent (after 2 tries)"
    assert total.message == "the answer did not end within 60 ms; nothing was sent"


async def test_that_a_later_try_was_not_sent_says_nothing_of_an_earlier_one() -> None:
    async with ModelServer({"": [RESET]}) as server, tools(lambda *_: not server.requests) as runner:
        told = await failure(runner, server.base_url, idempotent=True)
        assert (server.connections, told.type, told.retryable) == (1, "OUTCOME_UNKNOWN", True)
        assert told.message.endswith("whether the tool took effect is unknown (after 2 tries)")


async def test_the_total_bounds_all_tries_and_pauses_together() -> None:
    async with ModelServer({"": [RESET, SILENCE]}) as server, tools() as runner:
        told = await failure(runner, server.base_url, idempotent=True, tries=5, total_ms=600)
        assert (told.type, told.retryable, len(server.requests)) == ("TIMEOUT", None, 2)
        assert "did not end within 600 ms (after 2 tries); whether" in told.message
        await until(lambda: len(server.left_early) == 1)


@pytest.mark.parametrize("asked", ["0", "0.3"])
async def test_a_pause_that_the_tool_asks_for_is_made(asked: str) -> None:
    busy = gives(b"", 429, headers={"Retry-After": asked})
    async with ModelServer({"": [busy, gives(b"1")]}) as server, tools() as runner:
        assert await post(runner, server.base_url, idempotent=True) == 1
        first, second = server.requests
        assert second.at - first.at >= float(asked)


async def test_one_that_there_is_no_time_for_ends_the_call_at_once() -> None:
    busy = gives(b'{"error": "come back tomorrow"}', 429, headers={"Retry-After": "86400"})
    async with ModelServer({"": [busy, gives(b"1")]}) as server, tools() as runner:
        total_ms = 20 * MOST_PAUSE_MS
        async with asyncio.timeout(MOST_PAUSE_MS / 1000):
            told = await failure(runner, server.base_url, idempotent=True, total_ms=total_ms)
        assert (told.type, told.message) == ("HTTP_ERROR", "HTTP 429: come back tomorrow")
        assert len(server.requests) == 1


async def test_a_call_that_is_cancelled_in_a_pause_is_over() -> None:
    busy = gives(b"", 429, headers={"Retry-After": "20"})
    async with ModelServer({"": [busy]}) as server, tools() as runner:
        call = asyncio.create_task(post(runner, server.base_url, idempotent=True))
        await until(lambda: server.answered == 1)
        call.cancel()
        await asyncio.wait([call], timeout=5)
        assert call.cancelled()
        assert len(server.requests) == 1


async def test_a_request_that_is_too_large_is_not_sent() -> None:
    async with ModelServer({"": [gives(b"1")]}) as server, tools() as runner:
        told = await failure(runner, server.base_url, arguments={"text": "x" * 2**20})
        assert (told.type, told.retryable, server.connections) == ("HTTP_TOO_LARGE", False, 0)
        assert "nothing was sent" in told.message
