"""Failures from the field that MCP servers caused in other services, each played by a peer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support import cases, chat_wire
from tests.support.heard import served
from tests.support.mcp_peer import Asked, RawPeer, paged, said, tool
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

CASES = {**cases.load("6-http-tools-mcp"), **cases.load("5-tool-arguments")}
SCHEMAS = cases.load("4-json-schema")
TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@asynccontextmanager
async def registered(service: Service, peer: RawPeer, **more: Any) -> AsyncIterator[RawPeer]:
    """The peer as the MCP server `peer` of the project, for the block."""
    async with peer:
        answer = await service.http.put("/v1/mcp-servers/peer", json={"url": peer.url, **more})
        assert answer.status_code < 300, answer.text
        yield peer


def request(name: str, **arguments: Any) -> dict[str, Any]:
    return {"function": f"mcp__peer__{name}", "arguments": arguments}


async def offered(service: Service) -> dict[str, dict[str, Any]]:
    """The tools of the peer by its own names for them."""
    tools = (await service.get("/v1/tools"))["data"]
    return {each["mcp"]["tool"]: each for each in tools if each["mcp"] is not None}


def calls(name: str, arguments: str = "{}") -> Attempt:
    """A model's answer that calls a tool."""
    function = {"name": name, "arguments": arguments}
    asked = {"index": 0, "id": "c1", "type": "function", "function": function}
    return Attempt(
        [chat_wire.delta({"tool_calls": [asked]}), chat_wire.delta({}, "tool_calls"), chat_wire.DONE]
    )


OK = Attempt(chat_wire.text("ok"))


async def test_h13_a_restart_costs_one_greeting(service: Service) -> None:
    async with registered(service, RawPeer([tool("a")])) as peer:
        branch = await service.branch()
        await service.act(branch, request("a"))
        await peer.stop()
        down = await service.act(branch, request("a"), request("a"), strategy="sequential")
        assert [result["status"] for result in down["result"]] == ["failed", "failed"]
        assert "branchline_mcp_servers_unavailable 1.0" in (await service.http.get("/metrics")).text
        assert (await service.get("/v1/mcp-servers/peer"))["state"] == "unavailable"
        assert (await service.http.get("/readyz")).status_code == 200
        await peer.restart()
        await peer.start()
        async with asyncio.timeout(20):  # The pause after a greeting in vain is a second or two.
            while (await service.get("/v1/mcp-servers/peer"))["state"] != "ready":
                pass
        greeted = peer.count("initialize")
        await peer.restart()
        run = await service.act(branch, *[request("a", n=n) for n in range(5)])
        assert [result["output"] for result in run["result"]] == ["a"] * 5
        assert peer.count("initialize") == greeted + 1


async def test_h13_what_may_have_been_carried_out_is_not_asked_for_again(service: Service) -> None:
    async def hangs_up(asked: Asked) -> Any:
        await peer.stop()

    async with registered(service, RawPeer([tool("a")])) as peer:
        await offered(service)
        peer.answers["tools/call"] = hangs_up
        run = await service.act(await service.branch(), request("a"))
        assert run["result"][0]["error"].startswith("OUTCOME_UNKNOWN")
        assert peer.count("tools/call") == 1


async def test_h14_a_changed_list_is_followed(service: Service) -> None:
    changed = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    release = asyncio.Event()

    async def answer(asked: Asked) -> Any:
        peer.tools = [tool("b", inputSchema=changed), tool("c")]
        for _ in range(10):
            peer.notify()
        await release.wait()
        peer.notify()
        return said("done")

    async with (
        registered(service, RawPeer([tool("a"), tool("b")])) as peer,
        ModelServer() as server,
    ):
        await offered(service)
        await until(lambda: peer.listeners == 1)
        peer.answers["tools/call"] = answer
        model = await served(service, server, [calls("mcp__peer__a"), OK])
        branch = await service.branch(chat_model=model)
        slow = await service.started(branch, actions=True)
        await until(lambda: peer.count("tools/call") == 1)
        await until(lambda: peer.count("tools/list") == 2)  # while the call is under way
        release.set()
        run = await service.ended(slow["id"])
        assert run["result"]["action_responses"][0]["output"] == "done"
        assert (await service.operate(branch, actions=True))["result"] == "ok"
        shown = {each["function"]["name"]: each["function"] for each in server.requests[-1].body["tools"]}
        theirs = {name: shown[name] for name in shown if name.startswith("mcp__")}
        assert set(theirs) == {"mcp__peer__b", "mcp__peer__c"}
        assert theirs["mcp__peer__b"]["parameters"] == changed
        assert peer.count("tools/list") <= 4  # eleven notices


async def test_h14_an_approval_is_for_the_tool_that_was_asked_about(service: Service) -> None:
    async with registered(service, RawPeer([tool("b")])) as peer:
        await offered(service)
        await until(lambda: peer.listeners == 1)
        branch = await service.branch(gate={"default": "escalate"})
        body = {"requests": [request("b"), request("b")]}
        answer = await service.http.post(f"/v1/branches/{branch}/act", json=body)
        assert answer.status_code == 202
        peer.tools = [tool("b", description="Now it does something else.")]
        peer.notify()
        async with asyncio.timeout(20):
            while not (await offered(service))["b"]["description"]:
                pass
        for waiting in (await service.get("/v1/approvals?status=pending"))["data"]:
            path = f"/v1/function-calls/{waiting['function_call_id']}/decision"
            assert (await service.http.post(path, json={"decision": "approve"})).status_code == 200
        run = await service.ended(answer.json()["id"])
        assert [r["error"].partition(":")[0] for r in run["result"]] == ["TOOL_CHANGED"] * 2
        assert peer.count("tools/call") == 0


@pytest.mark.parametrize("variant", ["mcp_pages", "variant"])
async def test_h16_a_cursor_that_does_not_advance_ends_the_list(service: Service, variant: str) -> None:
    pages = CASES["H16"]["input"][variant]
    async with registered(service, RawPeer(answers={"tools/list": paged(pages)})) as peer:
        assert list(await offered(service)) == ["a", "b"]
        assert peer.count("tools/list") == 2


async def test_h16_a_list_without_an_end_is_none(service: Service) -> None:
    async def endless(asked: Asked) -> Any:
        n = int(asked.params.get("cursor", "0"))
        return {"tools": [tool(f"t{n}")], "nextCursor": str(n + 1)}

    async with registered(service, RawPeer(answers={"tools/list": endless})) as peer:
        assert await offered(service) == {}
        standing = await service.get("/v1/mcp-servers/peer")
        assert (standing["state"], "more than 50 pages" in standing["reason"]) == ("refused", True)
        assert peer.count("tools/list") == 50


async def test_h16_a_list_that_does_not_come_holds_nobody_up(service: Service) -> None:
    async def silent(asked: Asked) -> Any:
        await asyncio.Event().wait()

    peer = RawPeer([tool("a")], answers={"tools/list": silent})
    async with registered(service, peer, timeout_ms={"request": 100}):
        branch = await service.branch()
        assert (await service.act(branch, {"function": "add", "arguments": {"a": 1, "b": 2}}))["result"]
        assert (await service.get("/v1/mcp-servers/peer"))["state"] == "unavailable"


async def test_s11_a_list_with_a_schema_of_an_older_draft_is_read_as_what_it_meant(service: Service) -> None:
    listed = [tool("old", inputSchema=SCHEMAS["S11"]["input"]["schema"]), tool("new")]
    async with registered(service, RawPeer(listed)):
        tools = await offered(service)
        assert list(tools) == ["old", "new"]
        assert tools["old"]["parameters"]["properties"]["ttl"] == {"type": "integer", "exclusiveMinimum": 0}
        run = await service.act(await service.branch(), request("old", ttl=0), request("old", ttl=1))
        refused, taken = run["result"]
        assert "/ttl" in refused["error"]
        assert taken["output"] == "old"


async def test_h18_results_of_every_form_are_told_apart(service: Service) -> None:
    results = CASES["H18"]["input"]["results"]
    tools = [tool("t0"), tool("t1"), tool("t2", outputSchema=results[2]["_outputSchema"])]

    async def answer(asked: Asked) -> Any:
        return {k: v for k, v in results[int(asked.params["name"][1])].items() if k != "_outputSchema"}

    async with registered(service, RawPeer(tools, answers={"tools/call": answer})):
        run = await service.act(await service.branch(), request("t0"), request("t1"), request("t2"))
        intact, failed, invalid = run["result"]
        assert (run["status"], intact["output"]) == ("completed", "a\u2028b")
        assert (failed["status"], failed["error"]) == ("failed", "MCP_TOOL_ERROR: no such id")
        assert (invalid["status"], invalid["error"].partition(":")[0]) == ("failed", "INVALID_RESPONSE")
        assert "/n" in invalid["error"]


async def test_t09_names_that_models_refuse_are_mapped_and_the_tool_is_the_original(
    database_url: str,
) -> None:
    originals = CASES["T09"]["input"]["tools"]
    mapped: list[dict[str, str]] = []
    peer = RawPeer([tool(name) for name in originals])
    for _ in range(2):  # and once more after a restart of the service
        async with (
            running(database_url) as service,
            registered(service, peer),
            ModelServer() as server,
        ):
            aliases = {name: each["name"] for name, each in (await offered(service)).items()}
            mapped.append(aliases)
            model = await served(service, server, [calls(aliases["calendar.update"]), OK])
            branch = await service.branch(chat_model=model)
            run = await service.operate(branch, actions=True)
            (response,) = run["result"]["action_responses"]
            assert response["output"] == "calendar.update"
            shown = [each["function"]["name"] for each in server.requests[0].body["tools"]]
            assert all(TAKEN.fullmatch(name) for name in shown)
            assert len(set(shown)) == len(shown) >= len(originals)
            (start,) = [e for e in await service.events(run["id"]) if e["type"] == "TOOL_START"]
            assert start["meta"]["toolName"] == aliases["calendar.update"]
            assert start["meta"]["origin"] == {"server": "peer", "tool": "calendar.update"}
    assert set(mapped[0]) == set(originals)
    assert mapped[0] == mapped[1]
