"""MCP servers in runs: true ones made with the SDK, over HTTP and as processes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from app.settings import McpServerSettings
from tests.support.hook_plugins import points
from tests.support.mcp_server import Offer, over_http, text
from tests.support.polling import until
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NOTES = Path(__file__).parents[1] / "support" / "mcp_notes.py"


async def weather(city: str) -> types.CallToolResult:
    return types.CallToolResult(content=[], structured_content={"city": city, "degrees": 7})


async def plain(**arguments: Any) -> types.CallToolResult:
    return text("plain")


def offered() -> Offer:
    offer = Offer()
    offer.add("weather", weather, input_schema=CITY, description="Tell the weather.")
    offer.add("calendar.update", plain)
    return offer


async def register(service: Service, url: str | None, name: str = "town", **more: Any) -> dict[str, Any]:
    answer = await service.http.put(f"/v1/mcp-servers/{name}", json={"url": url, **more})
    assert answer.status_code < 300, answer.text
    made: dict[str, Any] = answer.json()
    return made


def request(function: str, **arguments: Any) -> dict[str, Any]:
    return {"function": function, "arguments": arguments}


def ends(run: dict[str, Any]) -> list[Any]:
    """The output of each call, or the type of its error."""
    errors = [(result["error"] or "").partition(":")[0] for result in run["result"]]
    return [error or result["output"] for error, result in zip(errors, run["result"], strict=True)]


async def appeared(service: Service, name: str) -> None:
    """Wait for a tool. Each look at the list waits for a list that is being read."""
    async with asyncio.timeout(20):
        while name not in [tool["name"] for tool in (await service.get("/v1/tools"))["data"]]:
            pass


async def test_its_tools_are_offered_and_called_like_any_other(service: Service) -> None:
    async with over_http(offered()) as server:
        made = await register(service, server.url)
        assert (made["state"], made["tools"], made["source"]) == ("idle", None, "project")
        tools = {tool["name"]: tool for tool in (await service.get("/v1/tools"))["data"]}
        tool = tools["mcp__town__weather"]
        assert (tool["kind"], tool["description"]) == ("mcp", "Tell the weather.")
        assert (tool["parameters"], tool["idempotent"], tool["http"]) == (CITY, False, None)
        assert tool["mcp"] == {"server": "town", "tool": "weather"}
        assert tool == await service.get("/v1/tools/mcp__town__weather")
        known = await service.get("/v1/mcp-servers/town")
        (alias,) = known["tools"].keys() - {"mcp__town__weather"}
        assert (known["state"], known["tools"][alias]) == ("ready", "calendar.update")
        branch = await service.branch()
        run = await service.act(
            branch,
            request("mcp__town__weather", city="Oslo"),
            request("mcp__town__weather", town="Oslo"),
            request(alias),
            request("mcp__town__nothing"),
        )
        assert ends(run) == [{"city": "Oslo", "degrees": 7}, "INVALID_ARGUMENTS", "plain", "TOOL_NOT_FOUND"]
        assert (await service.http.delete("/v1/tools/mcp__town__weather")).status_code == 409
        assert (await service.http.delete("/v1/mcp-servers/town")).status_code == 204
        names = {tool["name"] for tool in (await service.get("/v1/tools"))["data"]}
        assert not names & {alias, "mcp__town__weather"}


async def test_a_model_calls_it_and_gates_hooks_and_records_are_as_for_any_tool(
    database_url: str,
) -> None:
    offer = offered()
    settings: dict[str, Any] = {"hook_modules": ("tests.support.hook_plugins",)}
    async with over_http(offer) as server, running(database_url, **settings) as service:
        await register(service, server.url)
        call = {"index": 0, "id": "c1", "name": "mcp__town__weather", "arguments": '{"city": "Rome"}'}
        model = await service.scripted("asks", [{"tool_call": call}, {"end": "tool_calls"}])
        gate = {"default": "escalate"}
        branch = await service.branch(chat_model=model, gate=gate)
        body = {"instruction": "go", "actions": True, "tools": ["mcp__town__weather"]}
        answer = await service.http.post(f"/v1/branches/{branch}/operate", json=body)
        assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
        run = answer.json()
        (waiting,) = (await service.get("/v1/approvals"))["data"]
        decided = f"/v1/function-calls/{waiting['function_call_id']}/decision"
        edit = {"decision": "edit", "arguments": {"city": "Bergen"}}
        assert (await service.http.post(decided, json=edit)).status_code == 200
        ended = await service.ended(run["id"])
        (response,) = ended["result"]["action_responses"]
        assert response["output"] == {"city": "Bergen", "degrees": 7}
        types_of = [event["type"] for event in await service.events(run["id"])]
        assert [name for name in types_of if name.startswith(("TOOL_", "APPROVAL_"))] == [
            *("TOOL_REQUESTED", "APPROVAL_REQUESTED", "APPROVAL_DECIDED", "TOOL_START", "TOOL_RESULT"),
            "TOOL_COMPLETED",
        ]
        assert points(run["id"]) == ["TOOL_PRE", "TOOL_POST"]
        gated = await service.branch(gate={"rules": [{"when": "arguments.city == 'Rome'", "effect": "deny"}]})
        (result,) = (await service.act(gated, request("mcp__town__weather", city="Rome")))["result"]
        assert result["status"] == "skipped"


async def test_a_changed_list_counts_from_the_next_run_on(service: Service) -> None:
    offer = offered()
    async with over_http(offer) as server:
        await register(service, server.url)
        branch = await service.branch()
        (before,) = (await service.act(branch, request("mcp__town__weather", city="Oslo")))["result"]
        assert before["error"] is None
        del offer.tools["weather"]
        offer.add("late", plain)
        await offer.changed()

        await appeared(service, "mcp__town__late")
        requests = request("mcp__town__weather", city="Oslo"), request("mcp__town__late")
        run = await service.act(branch, *requests)
        assert ends(run) == ["TOOL_NOT_FOUND", "plain"]


async def test_a_process_of_the_operators_is_a_server_too(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_OWNER", "Ada")
    monkeypatch.setenv("NOT_FOR_IT", "hidden")
    notes = McpServerSettings(
        name="notes", command=(sys.executable, str(NOTES)), env=("NOTES_OWNER",), cwd=str(tmp_path)
    )
    async with running(database_url, mcp_servers=(notes,)) as service:
        branch = await service.branch()
        run = await service.act(
            branch,
            request("mcp__notes__write", name="a", said="one\u2028two"),
            request("mcp__notes__read", name="a"),
            request("mcp__notes__read", name="b"),
            request("mcp__notes__about"),
            strategy="sequential",
        )
        written, read, missing, about = run["result"]
        assert written["output"] == {"result": "written"}
        assert read["output"] == {"result": "one\u2028two"}
        assert missing["error"].startswith("MCP_TOOL_ERROR: ")
        told = about["output"]
        assert (told["owner"], told["others"], told["folder"]) == ("Ada", [], str(tmp_path))
        known = await service.get("/v1/mcp-servers/notes")
        assert (known["transport"], known["source"], known["url"]) == ("stdio", "operator", None)
        assert "command" not in known
        assert (await service.http.delete("/v1/mcp-servers/notes")).status_code == 409
        server = {"url": "http://127.0.0.1:9/mcp"}
        assert (await service.http.put("/v1/mcp-servers/notes", json=server)).status_code == 409
        alive = Path(f"/proc/{told['process']}")
        group = told["group"]
        assert group == told["process"]
    await until(lambda: not alive.exists())


async def test_cancelling_the_run_calls_the_call_off(service: Service) -> None:
    offer, waiting = Offer(), asyncio.Event()
    over = asyncio.Event()

    async def wait() -> types.CallToolResult:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        return text("never")

    offer.add("wait", wait)
    async with over_http(offer) as server:
        await register(service, server.url)
        branch = await service.branch()
        answer = await service.http.post(
            f"/v1/branches/{branch}/act",
            json={"requests": request("mcp__town__wait")},
            headers={"Prefer": "respond-async"},
        )
        await waiting.wait()
        run = (await service.http.post(f"/v1/runs/{answer.json()['id']}/cancel")).json()
        assert run["status"] == "cancelled"
        await over.wait()


async def test_a_registered_tool_is_never_replaced(service: Service) -> None:
    async with over_http(offered()) as server:
        body = {"kind": "http", "parameters": {"type": "object"}, "http": {"url": "http://127.0.0.1:9/"}}
        assert (await service.http.put("/v1/tools/mcp__town__weather", json=body)).status_code == 201
        await register(service, server.url)
        tool = await service.get("/v1/tools/mcp__town__weather")
        assert (tool["kind"], tool["mcp"]) == ("http", None)
        run = await service.act(await service.branch(), request("mcp__town__weather"))
        assert run["result"][0]["error"].startswith("CONNECTION_FAILED")
