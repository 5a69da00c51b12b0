"""What is offered of a server: all that it lists or nothing, and what it lists now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.adapters.mcp.peer import LIST_EVERY_MS
from tests.support.mcp_peer import Asked, RawPeer, paged, tool
from tests.support.mcp_stage import invocation, staged
from tests.support.polling import until

pytestmark = pytest.mark.anyio


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
