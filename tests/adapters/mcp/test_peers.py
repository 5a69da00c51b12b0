"""What becomes of a server that restarts, is away, is slow, changes its mind or lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from app.adapters.mcp.peer import LIST_EVERY_MS
from app.adapters.mcp.peers import Peers
from app.adapters.mcp.wire import MAX_BYTES
from app.adapters.tools.mcp import McpTools
from app.core.mcp_server import McpServer
from app.ports.tool import Invocation, ToolFailure, ToolSpec
from app.services.models import AddressRule
from tests.support.ambient import FakeClock
from tests.support.mcp_peer import Asked, RawPeer, Refusal, paged, said, tool
from tests.support.polling import until

pytestmark = pytest.mark.anyio

PROJECT = UUID(int=1)
SECRET = "a-token-that-nobody-sees"


class Stage:
    """A peer, and what speaks with it."""

    def __init__(self, peer: RawPeer, peers: Peers, clock: FakeClock, **server: Any) -> None:
        self.peer = peer
        self.peers = peers
        self.clock = clock
        self.server = McpServer("peer", peer.url, **server)
        self.runner = McpTools(peers)

    @property
    def standing(self) -> Any:
        return self.peers.standing(PROJECT, self.server)

    async def tools(self) -> Mapping[str, ToolSpec]:
        return await self.peers.tools(PROJECT, self.server)

    async def names(self) -> list[str]:
        return [name.removeprefix("mcp__peer__") for name in await self.tools()]

    async def call(self, name: str = "a", **arguments: Any) -> Any:
        spec = (await self.tools())[f"mcp__peer__{name}"]
        return await self.runner.call(spec, invocation(spec, arguments))

    async def failure(self, name: str = "a", **arguments: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as caught:
            await self.call(name, **arguments)
        return caught.value


def invocation(spec: ToolSpec, arguments: dict[str, Any]) -> Invocation:
    return Invocation(UUID(int=9), spec.name, arguments, UUID(int=2), UUID(int=3), PROJECT)


@asynccontextmanager
async def staged(
    peer: RawPeer | None = None,
    *,
    may_reach: Callable[[str, str], bool] = lambda host, address: True,
    exposed: Mapping[str, str | None] | None = None,
    **server: Any,
) -> AsyncIterator[Stage]:
    clock = FakeClock()
    peers = Peers(may_reach, exposed or {}, {}, clock)
    async with peer or RawPeer([tool("a"), tool("b")]) as serving:
        try:
            yield Stage(serving, peers, clock, **server)
        finally:
            await peers.aclose()


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


async def test_a_server_that_greets_nobody_is_given_up() -> None:
    async def silent(asked: Asked) -> Any:
        await asyncio.Event().wait()

    async with staged(RawPeer(answers={"initialize": silent}), connect_ms=50, request_ms=100) as stage:
        assert await stage.names() == []
        assert (stage.standing.state, stage.standing.reason) == ("unavailable", "no greeting within 0.15 s")


async def test_a_notice_of_a_change_is_followed_and_a_burst_of_them_once() -> None:
    async with staged() as stage:
        before = await stage.tools()
        assert await stage.tools() is before
        await until(lambda: stage.peer.listeners == 1)
        changed = {"type": "object", "required": ["n"]}
        stage.peer.tools = [tool("b", inputSchema=changed), tool("c")]
        stage.clock.now_ms += int(LIST_EVERY_MS)
        for _ in range(10):
            stage.peer.notify()
        await until(lambda: stage.peer.count("tools/list") == 2)
        after = await stage.tools()
        assert await stage.names() == ["b", "c"]
        assert after["mcp__peer__b"].parameters == changed
        assert stage.peer.count("tools/list") <= 3  # those that came during the reading count once more
        spec = before["mcp__peer__a"]  # planned before the change
        assert await stage.runner.call(spec, invocation(spec, {})) == "a"


async def test_a_server_that_only_speaks_of_changes_is_read_once_in_a_while() -> None:
    async with staged() as stage:
        await stage.tools()
        await until(lambda: stage.peer.listeners == 1)

        async def listing(asked: Asked) -> Any:
            stage.peer.notify()
            return {"tools": stage.peer.tools}

        stage.peer.answers["tools/list"] = listing
        stage.peer.notify()
        stage.peer.notify()
        assert await stage.call() == "a"
        assert stage.peer.count("tools/list") <= 2


@pytest.mark.parametrize("streams", [True, False])
async def test_a_list_comes_in_pages(streams: bool) -> None:
    pages: list[dict[str, Any]] = [
        {"cursor_in": None, "tools": ["a"], "nextCursor": "2"},
        {"cursor_in": "2", "tools": ["b"], "nextCursor": "3"},
        {"cursor_in": "3", "tools": ["c"]},
    ]
    async with staged(RawPeer(answers={"tools/list": paged(pages)}, streams=streams)) as stage:
        assert await stage.names() == ["a", "b", "c"]


async def test_a_list_without_an_end_is_refused() -> None:
    async def endless(asked: Asked) -> Any:
        n = int(asked.params.get("cursor", "0"))
        return {"tools": [tool(f"t{n}")], "nextCursor": str(n + 1)}

    async with staged(RawPeer(answers={"tools/list": endless})) as stage:
        assert await stage.names() == []
        assert (stage.standing.state, stage.standing.reason) == (
            "refused",
            "the list has more than 50 pages",
        )


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ([tool("x", inputSchema={"type": "array"})], "inputSchema.type: Input should be 'object'"),
        (
            [tool("x", inputSchema={"type": "object", "minProperties": "1"})],
            "'x' cannot be taken: invalid JSON",
        ),
        ([tool("x", inputSchema={"type": "object", "$ref": "http://127.0.0.1:1/"})], "never fetched"),
        ([tool("x", outputSchema={"type": "object", "pattern": "("})], "'x' cannot be taken"),
        ([tool("x"), tool("x", description="other")], "'x' is listed twice"),
        ([tool("")], "without a name"),
        ([tool(f"t{n}") for n in range(501)], "more than 500 tools"),
        ([tool("a.b"), tool("a_b_" + "x" * 8)], None),
        ([{"name": "x"}], "not what the protocol says"),
    ],
)
async def test_a_list_is_taken_as_a_whole_or_not_at_all(listed: list[Any], reason: str | None) -> None:
    async with staged(RawPeer([tool("good"), *listed])) as stage:
        names = await stage.names()
        if reason is None:
            assert len(names) == len(listed) + 1
            return
        assert (names, reason in (stage.standing.reason or "")) == ([], True), stage.standing
        assert stage.standing.state == "refused"


async def test_a_list_that_does_not_come_holds_nobody_up_twice() -> None:
    async def silent(asked: Asked) -> Any:
        await asyncio.Event().wait()

    async with staged(RawPeer([tool("a")], answers={"tools/list": silent}), request_ms=100) as stage:
        assert await stage.names() == []
        assert (stage.standing.state, stage.peer.count("tools/list")) == ("unavailable", 1)
        for _ in range(10):
            assert await stage.names() == []
        assert stage.peer.count("tools/list") == 1
        del stage.peer.answers["tools/list"]
        stage.clock.now_ms += 1_001
        await stage.names()  # It is asked again, and not waited for.
        await until(lambda: stage.standing.state == "ready")
        assert await stage.names() == ["a"]


async def test_a_list_is_asked_for_in_a_new_session_if_the_old_one_is_lost() -> None:
    async with staged() as stage:
        await stage.tools()
        await stage.peer.restart()
        stage.peer.tools = [tool("c")]
        stage.clock.now_ms += 300_001
        assert await stage.names() == ["a", "b"]
        assert await stage.names() == ["c"]
        assert stage.peer.count("initialize") == 2


async def test_hints_are_believed_only_if_the_registration_says_so() -> None:
    tools = [
        tool("reads", annotations={"readOnlyHint": True}),
        tool("repeats", annotations={"idempotentHint": True}),
        tool("writes", annotations={"destructiveHint": False}),
    ]
    for trust, expected in ((False, []), (True, ["mcp__peer__reads", "mcp__peer__repeats"])):
        async with staged(RawPeer(tools), trust_hints=trust) as stage:
            idempotent = [name for name, spec in (await stage.tools()).items() if spec.idempotent]
            assert idempotent == expected


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
        assert "*** is no good" in told.message
        stage.clock.now_ms += 400_000
        await stage.tools()
        await stage.tools()
        assert "*** is no good" in stage.standing.reason
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err


async def test_a_header_without_a_value_is_named() -> None:
    async with staged(headers=(("X-Key", "env:NOWHERE"),)) as stage:
        assert await stage.names() == []
        assert "'NOWHERE'" in stage.standing.reason
        assert stage.peer.asked == []
