"""Calling tools over HTTP: what is sent, where nothing is sent, and how each way of not answering is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from app.adapters.tools.http_answers import MAX_BYTES
from app.core.addresses import AddressRule
from app.ports.tool import ToolFailure
from tests.support.http_tools import (
    BRANCH,
    CALL,
    JSON,
    PROJECT,
    RUN,
    SILENCE,
    failure,
    gives,
    post,
    tools,
)
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until

pytestmark = pytest.mark.anyio

SECRET = "a-token-that-nobody-sees"
LONG_S = 3_600.0
HALF = Attempt([b"[1", LONG_S], framing="chunked")
DROPS = Attempt([b"1", 0.01] * 1_000, framing="chunked")


async def answered(attempt: Attempt, **said: Any) -> Any:
    async with ModelServer({"": [attempt]}) as server, tools() as runner:
        return await post(runner, server.base_url, **said)


async def failed(attempt: Attempt, **said: Any) -> ToolFailure:
    async with ModelServer({"": [attempt]}) as server, tools() as runner:
        told = await failure(runner, server.base_url, **said)
        await until(lambda: bool(server.requests))
        # Whatever went wrong: the connection is given up, and nothing is asked again.
        await until(lambda: server.answered + len(server.left_early) == 1 or attempt.then == "reset")
        assert len(server.requests) == 1
        return told


async def test_a_call_is_one_post_that_says_what_is_called_and_for_whom() -> None:
    async with ModelServer({"": [gives(b"3")]}) as server, tools() as runner:
        host = f"127.0.0.1:{server.port}"
        url = f"http://{host}/in?team=1#part"
        assert await post(runner, url, {"n": 2**70, "key": "ä"}) == 3
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/in?team=1")
    assert request.body == {
        "call_id": str(CALL),
        "function": "t",
        "arguments": {"n": 2**70, "key": "ä"},
        "run_id": str(RUN),
        "branch_id": str(BRANCH),
        "project_id": str(PROJECT),
    }
    assert request.headers["idempotency-key"] == str(CALL)
    assert request.headers["content-type"] == request.headers["accept"] == JSON
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["host"] == host


async def test_headers_are_sent_with_the_values_of_their_variables() -> None:
    exposed = {"TOKEN": f"Bearer {SECRET}\n"}
    headers = {"Authorization": "env:TOKEN", "X-Team": "blue", "User-Agent": "mine"}
    async with ModelServer({"": [gives(b"1")]}) as server, tools(exposed=exposed) as runner:
        await post(runner, server.base_url, headers=headers)
        (request,) = server.requests
    sent = request.headers
    assert (sent["authorization"], sent["x-team"], sent["user-agent"]) == (f"Bearer {SECRET}", "blue", "mine")


@pytest.mark.parametrize("value", [None, "", " ", f"{SECRET}\r\nx: y", f"{SECRET}ü", f"{SECRET}\0"])
async def test_a_variable_that_cannot_be_sent_is_named_and_its_value_is_not(value: str | None) -> None:
    async with ModelServer() as server, tools(exposed={"TOKEN": value}) as runner:
        told = await failure(runner, server.base_url, headers={"X-Key": "env:TOKEN"})
        withdrawn = await failure(runner, server.base_url, headers={"X-Key": "env:OTHER"})
        assert server.connections == 0
    assert told.type == withdrawn.type == "NOT_CONFIGURED"
    assert ("'TOKEN'" in told.message, SECRET in told.message, "'OTHER'" in withdrawn.message) == (
        True,
        False,
        True,
    )


async def test_a_credential_is_sent_as_a_header_and_told_in_no_output() -> None:
    said = {"you": SECRET, "in": [f"x{SECRET}"], "team": "lamps-and-shades"}
    attempt = gives(json.dumps(said).encode())
    headers = {"X-Stored": "credential:c", "X-Team": "lamps-and-shades"}
    async with ModelServer({"": [attempt]}) as server, tools(credentials={"c": SECRET}) as runner:
        told = await post(runner, server.base_url, headers=headers)
    assert server.requests[0].headers["x-stored"] == SECRET
    assert told == {"you": "[redacted]", "in": ["x[redacted]"], "team": "lamps-and-shades"}


async def test_a_credential_that_is_gone_and_one_that_does_not_open_fail_the_call() -> None:
    async with ModelServer({"": [gives(b"1")]}) as server, tools() as runner:
        gone = await failure(runner, server.base_url, headers={"X": "credential:c"})
        sealed = await failure(runner, server.base_url, headers={"X": "sealed:1:k:AAAA"})
        assert server.connections == 0
    assert (gone.type, gone.retryable) == ("UNKNOWN_CREDENTIAL", False)
    assert (sealed.type, sealed.retryable) == ("CREDENTIAL_UNREADABLE", False)
    assert "AAAA" not in sealed.message


@pytest.mark.parametrize(("status", "body"), [(401, b'{"error": "no such: %s"}'), (200, b"no such: %s")])
async def test_a_tool_that_repeats_its_secret_does_not_tell_it_to_others(status: int, body: bytes) -> None:
    attempt = gives(body % SECRET.encode(), status)
    async with ModelServer({"": [attempt]}) as server, tools(exposed={"T": f"Bearer {SECRET}"}) as runner:
        told = await failure(runner, server.base_url, headers={"Authorization": "env:T"})
    assert "no such: [redacted]" in told.message


@pytest.mark.parametrize(
    "attempt",
    [gives(b"[1]"), Attempt([b"[", b"1]"], framing="chunked"), Attempt([b"[1]"]), gives(b"[1]", 201)],
    ids=["length", "chunked", "until the end", "created"],
)
async def test_an_answer_however_it_is_framed(attempt: Attempt) -> None:
    assert await answered(attempt) == [1]


@pytest.mark.parametrize("attempt", [gives(b""), Attempt(status=204, content_type=None, then="keep")])
async def test_no_content_is_null(attempt: Attempt) -> None:
    assert await answered(attempt) is None


async def test_a_connection_is_used_again_and_no_cookie_is_kept() -> None:
    attempt = gives(b"1", headers={"Set-Cookie": "a=b"}, then="keep")
    async with ModelServer({"": [attempt]}) as server, tools() as runner:
        assert [await post(runner, server.base_url) for _ in range(3)] == [1, 1, 1]
        assert server.connections == 1
        assert all("cookie" not in request.headers for request in server.requests)


@pytest.mark.parametrize(
    ("attempt", "type", "retryable"),
    [
        pytest.param(gives(b'{"error": "no"}', 500), "HTTP_ERROR", False, id="status"),
        pytest.param(gives(b"", 503), "HTTP_ERROR", True, id="passing status"),
        pytest.param(gives(b"<html>"), "INVALID_RESPONSE", False, id="no JSON"),
        pytest.param(
            gives(b"1", headers={"Content-Encoding": "gzip"}), "INVALID_RESPONSE", False, id="compressed"
        ),
        pytest.param(Attempt(head=b""), "OUTCOME_UNKNOWN", True, id="closed before an answer"),
        pytest.param(Attempt(head=b"", chunks=[0.01], then="reset"), "OUTCOME_UNKNOWN", True, id="reset"),
        pytest.param(Attempt(head=b"HELLO\r\n\r\n"), "OUTCOME_UNKNOWN", True, id="no HTTP"),
        pytest.param(
            Attempt([b'{"a": 1'], framing="length", cut=True), "CONNECTION_LOST", True, id="cut by length"
        ),
        pytest.param(
            Attempt([b"[1]"], framing="chunked", cut=True), "CONNECTION_LOST", True, id="cut chunks"
        ),
        pytest.param(
            Attempt([b'{"a"', 0.01], framing="length", cut=True, then="reset"),
            "CONNECTION_LOST",
            True,
            id="reset in the middle",
        ),
    ],
)
async def test_an_answer_that_is_none(attempt: Attempt, type: str, retryable: bool) -> None:
    told = await failed(attempt)
    assert (told.type, told.retryable) == (type, retryable)
    if type in ("OUTCOME_UNKNOWN", "CONNECTION_LOST"):
        assert "whether the tool took effect is unknown" in told.message


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(gives(b'"' + b"x" * MAX_BYTES + b'"'), id="told by its length"),
        pytest.param(Attempt([b"1" * 65_536] * 17 + [LONG_S], framing="chunked"), id="found out"),
    ],
)
async def test_an_answer_that_is_too_large(attempt: Attempt) -> None:
    told = await failed(attempt)
    assert (told.type, told.retryable) == ("HTTP_TOO_LARGE", False)


async def test_the_largest_answer() -> None:
    text = "x" * (MAX_BYTES - 2)
    assert await answered(gives(f'"{text}"'.encode())) == text


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(Attempt([b'{"error": "busy"}', LONG_S], 503, framing="chunked"), id="slow"),
        pytest.param(Attempt([b"x" * 65_536] * 20 + [LONG_S], 503, framing="chunked"), id="long"),
        pytest.param(Attempt([b"x"], 503, framing="length", cut=True, then="reset"), id="broken"),
    ],
)
async def test_a_status_counts_whatever_becomes_of_its_body(attempt: Attempt) -> None:
    told = await failed(attempt)
    assert (told.type, told.retryable, told.message[:8]) == ("HTTP_ERROR", True, "HTTP 503")


@pytest.mark.parametrize(
    ("attempt", "said", "words"),
    [
        pytest.param(SILENCE, {"first_byte_ms": 30}, "no answer within 30 ms", id="silence"),
        pytest.param(
            SILENCE,
            {"first_byte_ms": 3_000, "total_ms": 250},
            "did not end within 250 ms",
            id="silence in total",
        ),
        pytest.param(HALF, {"total_ms": 250}, "did not end within 250 ms", id="half"),
        pytest.param(DROPS, {"total_ms": 250}, "did not end within 250 ms", id="drop by drop"),
    ],
)
async def test_limits_of_time(attempt: Attempt, said: dict[str, int], words: str) -> None:
    told = await failed(attempt, **said)
    assert (told.type, told.retryable) == ("TIMEOUT", None)
    assert words in told.message
    assert told.message.endswith("whether the tool took effect is unknown")


async def test_after_the_first_byte_its_limit_is_over() -> None:
    attempt = Attempt([b"[1", 1.2, b"]"], framing="chunked")
    assert await answered(attempt, first_byte_ms=1_000) == [1]


async def test_a_peer_that_never_shakes_hands_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(1_000):
                pass
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server, tools() as runner:
        port = server.sockets[0].getsockname()[1]
        told = await failure(runner, f"https://127.0.0.1:{port}/", connect_ms=50)
    assert (told.type, told.retryable) == ("TIMEOUT", True)
    assert "nothing was sent" in told.message


async def test_no_connection() -> None:
    async with ModelServer() as server:
        url = server.base_url
    async with tools() as runner:
        refused = await failure(runner, url)
        nameless = await failure(runner, "http://" + "x" * 70 + ".example/")
        plain = await failure(runner, "http://127.0.0.1:0/")
    for told in (refused, nameless, plain):
        assert (told.type, told.retryable) == ("CONNECTION_FAILED", True)
        assert "nothing was sent" in told.message


async def test_redirects_are_not_followed() -> None:
    async with ModelServer() as inside, ModelServer() as server, tools() as runner:
        for status in (301, 302, 303, 307, 308):
            there = {"Location": f"http://127.0.0.1:{inside.port}/"}
            server.scripts[""] = [gives(b'{"error": "inside"}', status, headers=there)]
            told = await failure(runner, server.base_url)
            assert (told.type, told.message) == (
                "BLOCKED_ADDRESS",
                f"HTTP {status}: redirects are not followed",
            )
        assert (inside.connections, len(server.requests)) == (0, 5)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1", "2130706433"])
async def test_a_host_that_may_not_be_reached_is_not_connected_to(host: str) -> None:
    async with ModelServer() as server, tools(AddressRule().admits) as runner:
        told = await failure(runner, f"http://{host}:{server.port}/")
        assert (told.type, told.retryable) == ("BLOCKED_ADDRESS", False)
        assert "127.0.0.1" not in told.message
        assert server.connections == 0


@pytest.mark.parametrize("allowed", ["127.0.0.1", "127.0.0.0/8", "localhost"])
async def test_a_listed_host_is_reached(allowed: str) -> None:
    host = "localhost" if allowed == "localhost" else "127.0.0.1"
    rule = AddressRule(allowed=(allowed,))
    async with ModelServer({"": [gives(b"1")]}) as server, tools(rule.admits) as runner:
        assert await post(runner, f"http://{host}:{server.port}/") == 1


async def test_what_a_name_means_is_looked_up_once_and_decides() -> None:
    asked: list[tuple[str, str]] = []

    def only_at_first(host: str, address: str) -> bool:
        asked.append((host, address))
        return False

    async with tools(only_at_first) as runner:
        assert (await failure(runner, "http://localhost:1/")).type == "BLOCKED_ADDRESS"
    assert asked
    assert len(set(asked)) == len(asked)
    assert {host for host, _ in asked} == {"localhost"}


@pytest.mark.parametrize("attempt", [SILENCE, HALF], ids=["before the answer", "in the middle of it"])
async def test_a_cancelled_call_closes_its_connection(attempt: Attempt) -> None:
    async with ModelServer({"": [attempt]}) as server, tools() as runner:
        task = asyncio.create_task(post(runner, server.base_url))
        await until(lambda: len(server.requests) == 1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await until(lambda: len(server.left_early) == 1)
