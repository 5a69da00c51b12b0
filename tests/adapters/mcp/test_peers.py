"""What becomes of calls when a server restarts, is away, is slow or lies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from app.adapters.mcp.answer import MAX_WORDS
from app.adapters.mcp.wire import MAX_BYTES
from app.core.addresses import AddressRule
from app.core.sealing import MARK
from tests.support.mcp_peer import Asked, RawPeer, Refusal, said, tool
from tests.support.mcp_stage import staged
from tests.support.polling import until

pytestmark = pytest.mark.anyio

SECRET = "a-token-that-nobody-sees"


async def test_one_session_serves_many_calls() -> None:
    async with staged() as stage:
        assert await asyncio.gather(*(stage.call() for _ in range(20))) == ["a"] * 20
        peer = stage.peer
        assert [peer.count(m) for m in ("server/discover", "initialize", "tools/list")] == [1, 1, 1]
        assert {each.session for each in peer.asked[2:]} == {"session-1"}
    assert stage.peer.sessions == set()  # it was told of the end


@pytest.mark.parametrize("unknown", [404, 400])
@pytest.mark.parametrize("streams", [True, False])
async def test_after_a_restart_all_calls_share_one_new_session(unknown: int, streams: bool) -> None:
    async with staged(RawPeer([tool("a")], unknown=unknown, streams=streams)) as stage:
        await stage.call()
        await stage.peer.restart()
        assert await asyncio.gather(*(stage.call(n=n) for n in range(10))) == ["a"] * 10
        assert stage.peer.count("initialize") == 2


async def test_a_bad_request_is_not_taken_for_a_lost_session() -> None:
    async def refuses(asked: Asked) -> Any:
        raise Refusal(400, error={"code": -32602, "message": "no such argument"})

    async with staged() as stage:
        stage.peer.answers["tools/call"] = refuses
        told = await stage.failure()
        assert (told.type, "no such argument" in told.message) == ("MCP_ERROR", True)
        assert (stage.peer.count("tools/call"), stage.peer.count("initialize")) == (1, 1)


async def test_a_session_that_is_never_known_is_asked_for_twice_and_no_more() -> None:
    async def forgets(asked: Asked) -> Any:
        raise Refusal(404, "no such session")

    async with staged() as stage:
        await stage.tools()
        stage.peer.answers["tools/call"] = forgets
        assert (await stage.failure()).type == "SERVER_UNAVAILABLE"
        assert stage.peer.count("tools/call") == 2


async def test_while_it_is_away_calls_fail_at_once_and_its_tools_stay() -> None:
    async with staged() as stage:
        await stage.call()
        await stage.peer.stop()
        assert (await stage.failure()).type == "CONNECTION_FAILED"
        assert (await stage.failure()).type == "CONNECTION_FAILED"  # it was greeted again, in vain
        told = await stage.failure()
        assert (told.type, told.retryable) == ("SERVER_UNAVAILABLE", True)
        assert "is not asked for another 1.0 s" in told.message
        assert stage.peers.away == 1
        assert (stage.standing.state, await stage.names()) == ("unavailable", ["a", "b"])
        await stage.peer.start()
        assert (await stage.failure()).type == "SERVER_UNAVAILABLE"
        stage.clock.now_ms += 1_001
        assert await stage.call() == "a"
        await stage.tools()
        assert (stage.standing.state, stage.peers.away) == ("ready", 0)


async def test_one_busy_answer_costs_one_call() -> None:
    busy = [True]

    async def sometimes(asked: Asked) -> Any:
        if busy:
            busy.pop()
            raise Refusal(503, "busy")
        return said("done")

    async with staged() as stage:
        await stage.tools()
        stage.peer.answers["tools/call"] = sometimes
        told = await stage.failure()
        assert (told.type, told.message, told.retryable) == ("SERVER_UNAVAILABLE", "HTTP 503", True)
        assert stage.peer.count("tools/call") == 1
        assert await stage.call() == "done"


async def test_calls_under_way_outlive_the_session_that_others_have_lost() -> None:
    release = asyncio.Event()

    async def answer(asked: Asked) -> Any:
        if asked.params["name"] == "a":
            await release.wait()
            return said("late")
        if stage.peer.count("initialize") == 1:
            raise Refusal(503)
        return said("b")

    async with staged() as stage:
        await stage.tools()
        stage.peer.answers["tools/call"] = answer
        slow = asyncio.create_task(stage.call("a"))
        await until(lambda: stage.peer.count("tools/call") == 1)
        await stage.failure("b")
        assert await stage.call("b") == "b"
        release.set()
        assert await slow == "late"


@pytest.mark.parametrize(
    ("result", "type"),
    [
        pytest.param({"content": "no list"}, "INVALID_RESPONSE", id="another form"),
        pytest.param({}, "INVALID_RESPONSE", id="nothing"),
        pytest.param(web.Response(text="<html>", content_type="text/html"), "MCP_ERROR", id="a page"),
        pytest.param(web.Response(text="{", content_type="application/json"), "INVALID_RESPONSE", id="half"),
        pytest.param(
            web.Response(body=b"x" * (MAX_BYTES + 1), content_type="application/json"),
            "MCP_TOO_LARGE",
            id="too large",
        ),
        pytest.param(web.Response(status=202), "MCP_ERROR", id="accepted"),
        pytest.param(
            web.Response(status=307, headers={"Location": "http://127.0.0.1:1/"}), "MCP_ERROR", id="redirect"
        ),
        pytest.param(web.Response(status=307, headers={"Location": "http://[::"}), "MCP_ERROR", id="nowhere"),
        pytest.param(web.Response(status=401, text="who?"), "MCP_ERROR", id="unauthorized"),
        pytest.param(
            web.Response(text="data: " + "x" * (MAX_BYTES + 1), content_type="text/event-stream"),
            "OUTCOME_UNKNOWN",
            id="too large an event",
        ),
        pytest.param(
            web.Response(text=": nothing\n\n", content_type="text/event-stream"),
            "OUTCOME_UNKNOWN",
            id="empty",
        ),
        pytest.param(
            web.Response(body=b"{}", content_type="application/json", headers={"Content-Encoding": "gzip"}),
            "INVALID_RESPONSE",
            id="compressed",
        ),
    ],
)
async def test_a_bad_answer_costs_its_call_and_nothing_else(result: Any, type: str) -> None:
    async def answer(asked: Asked) -> Any:
        return result if asked.params["name"] == "a" else said("fine")

    async with staged() as stage:
        await stage.tools()
        stage.peer.answers["tools/call"] = answer
        assert (await stage.failure("a")).type == type
        assert await stage.call("b") == "fine"
        assert (stage.peer.count("initialize"), stage.peer.count("tools/call")) == (1, 2)


async def test_a_connection_that_ends_without_an_answer_is_not_tried_again() -> None:
    async def hangs_up(asked: Asked) -> Any:
        await stage.peer.stop()

    async with staged() as stage:
        await stage.tools()
        stage.peer.answers["tools/call"] = hangs_up
        told = await stage.failure()
        assert (told.type, stage.peer.count("tools/call")) == ("OUTCOME_UNKNOWN", 1)
        del stage.peer.answers["tools/call"]
        await stage.peer.start()
        assert await stage.call() == "a"


async def test_a_silent_server_is_left_in_time_and_told_so() -> None:
    async def silent(asked: Asked) -> Any:
        await asyncio.Event().wait()

    async with staged(call_ms=150) as stage:
        await stage.tools()
        stage.peer.answers["tools/call"] = silent
        told = await stage.failure()
        assert (told.type, told.retryable) == ("TIMEOUT", None)
        await until(lambda: stage.peer.count("notifications/cancelled") == 1)
        await until(lambda: stage.peer.gone == 1)
        del stage.peer.answers["tools/call"]
        assert await stage.call() == "a"


async def test_a_stream_that_has_begun_is_closed_when_its_call_is_called_off() -> None:
    async def begins(asked: Asked, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": soon\n\n")
        await asyncio.Event().wait()
        return response

    async with staged() as stage:
        await stage.tools()
        stage.peer.streaming["tools/call"] = begins
        call = asyncio.create_task(stage.call())
        await until(lambda: stage.peer.count("tools/call") == 1)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await until(lambda: stage.peer.gone == 1)
        del stage.peer.streaming["tools/call"]
        assert await stage.call() == "a"


async def test_text_that_cannot_be_sent_costs_its_call_and_nothing_else() -> None:
    async with staged() as stage:
        assert (await stage.failure(half="\ud800")).type == "INVALID_ARGUMENTS"
        assert await stage.call() == "a"
        assert stage.peer.count("initialize") == 1


async def test_a_server_of_another_age_is_told_as_such() -> None:
    async def older(asked: Asked) -> Any:
        return {
            "protocolVersion": "1999-01-01",
            "capabilities": {},
            "serverInfo": {"name": "p", "version": "1"},
        }

    async with staged(RawPeer(answers={"initialize": older})) as stage:
        assert await stage.names() == []
        assert "1999-01-01" in stage.standing.reason


async def test_a_server_that_greets_nobody_is_given_up() -> None:
    async def silent(asked: Asked) -> Any:
        await asyncio.Event().wait()

    async with staged(RawPeer(answers={"initialize": silent}), connect_ms=50, request_ms=100) as stage:
        assert await stage.names() == []
        assert (stage.standing.state, stage.standing.reason) == ("unavailable", "no greeting within 0.15 s")


async def test_what_the_server_asks_of_us_is_declined() -> None:
    declined = asyncio.Event()

    async def asks(asked: Asked) -> Any:
        question = {"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}}
        stage.peer._listeners[0].put_nowait(question)
        await until(lambda: stage.peer.count("(answer)") == 1)
        declined.set()
        return said("went on")

    async with staged() as stage:
        await stage.tools()
        await until(lambda: stage.peer.listeners == 1)
        stage.peer.answers["tools/call"] = asks
        assert await stage.call() == "went on"
        assert declined.is_set()
        (greeting,) = [each for each in stage.peer.asked if each.method == "initialize"]
        assert greeting.params["capabilities"] == {}


async def test_an_address_that_may_not_be_reached_is_not() -> None:
    rule = AddressRule()
    async with staged(may_reach=rule.admits) as stage:
        assert await stage.names() == []
        assert stage.standing.reason == "the host's address is one that may not be reached"
        assert stage.peer.asked == []


async def test_headers_are_sent_and_seen_by_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    async def echoes(asked: Asked) -> Any:
        raise Refusal(error={"code": 1, "message": f"{asked.headers['authorization']} is no good"})

    headers = (("Authorization", "env:TOKEN"), ("X-Team", "blue"))
    async with staged(exposed={"TOKEN": f"Bearer {SECRET}"}, headers=headers) as stage:
        await stage.tools()
        assert {each.headers["authorization"] for each in stage.peer.asked} == {f"Bearer {SECRET}"}
        assert {each.headers["x-team"] for each in stage.peer.asked} == {"blue"}
        stage.peer.answers["tools/call"] = stage.peer.answers["tools/list"] = echoes
        told = await stage.failure()
        assert "[redacted] is no good" in told.message
        stage.clock.now_ms += 400_000
        await stage.tools()
        await stage.tools()
        assert "[redacted] is no good" in stage.standing.reason
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err


async def test_a_header_without_a_value_is_named() -> None:
    async with staged(headers=(("X-Key", "env:NOWHERE"),)) as stage:
        assert await stage.names() == []
        assert "'NOWHERE'" in stage.standing.reason
        assert stage.peer.asked == []


async def test_a_credential_is_sent_as_it_is_at_the_moment() -> None:
    secrets = {"stored": "the-first-of-them"}
    async with staged(secrets=secrets, headers=(("X-Stored", "credential:stored"),)) as stage:
        await stage.call()
        assert {each.headers["x-stored"] for each in stage.peer.asked} == {"the-first-of-them"}
        secrets["stored"] = "the-second-of-them"
        await stage.call()
        assert stage.peer.asked[-1].headers["x-stored"] == "the-second-of-them"
        assert stage.peer.count("initialize") == 1
        del secrets["stored"]
        told = await stage.failure()
        assert (told.type, told.retryable) == ("UNKNOWN_CREDENTIAL", False)
        assert stage.peer.count("tools/call") == 2
        secrets["stored"] = "the-third-of-them"
        assert await stage.call() == "a"


async def test_a_credential_that_is_not_there_is_named() -> None:
    async with staged(headers=(("X-Stored", "credential:nowhere"),)) as stage:
        assert await stage.names() == []
        assert "'nowhere'" in stage.standing.reason
        assert stage.peer.asked == []


async def test_a_value_that_does_not_open_is_not_sent() -> None:
    async with staged(headers=(("X-Key", f"{MARK}lost:AAAA"),)) as stage:
        assert await stage.names() == []
        assert "'X-Key' does not open" in stage.standing.reason
        assert stage.peer.asked == []


@pytest.mark.parametrize("structured", [True, False])
async def test_an_output_has_none_of_the_secrets_that_were_sent(structured: bool) -> None:
    async def echoes(asked: Asked) -> Any:
        text = f"{asked.headers['x-stored']} of {asked.headers['x-team']}"
        return {**said(text), **({"structuredContent": {"told": text}} if structured else {})}

    headers = (("X-Stored", "credential:stored"), ("X-Team", "the blue ones"))
    async with staged(secrets={"stored": SECRET}, headers=headers) as stage:
        await stage.tools()
        stage.peer.answers["tools/call"] = echoes
        told = "[redacted] of the blue ones"
        assert await stage.call() == ({"told": told} if structured else told)


async def test_a_failure_tells_none_of_what_was_sent_however_long_it_is() -> None:
    async def echoes(asked: Asked) -> Any:
        pieces = [asked.headers["x-team"], asked.headers["x-team"][:12], "x" * 500_000]
        return {"content": [{"type": "text", "text": text} for text in pieces], "isError": True}

    async with staged(headers=(("X-Team", "the blue ones"),)) as stage:
        await stage.tools()
        stage.peer.answers["tools/call"] = echoes
        told = await stage.failure()
        assert told.message.startswith("[redacted]\n[redacted]\nxxx")
        assert len(told.message) == MAX_WORDS
