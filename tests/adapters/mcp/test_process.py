"""Servers that are processes: how they start, what they see, and that they end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.adapters.ambient import SystemClock
from app.adapters.mcp.peers import Peers
from app.adapters.mcp.process import environment
from app.adapters.tools.mcp import McpTools
from app.core.mcp_server import McpServer
from app.ports.tool import ToolFailure
from tests.support.credentials import FakeCredentials
from tests.support.mcp_stage import invocation
from tests.support.network import ANYWHERE
from tests.support.polling import until

pytestmark = pytest.mark.anyio

PROGRAM = """
import json, os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("hello, operator", file=sys.stderr, flush=True)
def say(message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked["method"], asked.get("id")
    if method == "initialize":
        say({"jsonrpc": "2.0", "id": id, "result": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "p", "version": "1"}}})
    elif method == "tools/list":
        names = ["pids", "long", "noise", "die", "deaf"]
        say({"jsonrpc": "2.0", "id": id, "result": {
            "tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}})
    elif method == "tools/call":
        name = asked["params"]["name"]
        if name == "die":
            os._exit(3)
        if name == "deaf":
            time.sleep(600)
        if name == "noise":
            print("this is no JSON", flush=True)
            print("", flush=True)
        text = "x" * 2_000_000 if name == "long" else json.dumps([os.getpid(), child.pid])
        say({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
    elif id is not None:
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
"""


class Running:
    """The program above as a server."""

    def __init__(self, peers: Peers, server: McpServer) -> None:
        self.peers = peers
        self.server = server

    async def call(self, name: str) -> Any:
        spec = (await self.peers.tools(None, self.server))[f"mcp__p__{name}"]
        return await McpTools(self.peers).call(spec, invocation(spec, {}))

    async def failure(self, name: str) -> str:
        with pytest.raises(ToolFailure) as caught:
            await self.call(name)
        return caught.value.type

    async def pids(self) -> list[int]:
        found: list[int] = eval(await self.call("pids"))
        return found


@asynccontextmanager
async def running(command: tuple[str, ...] | None = None, **more: Any) -> AsyncIterator[Running]:
    server = McpServer("p", command=command or (sys.executable, "-c", PROGRAM), **more)
    peers = Peers(ANYWHERE, {}, FakeCredentials(), {}, SystemClock())
    try:
        yield Running(peers, server)
    finally:
        await peers.aclose()


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_it_ends_with_all_that_it_has_started(capsys: pytest.CaptureFixture[str]) -> None:
    async with running() as made:
        pids = await made.pids()
        assert await made.pids() == pids
        assert len({os.getpgid(pid) for pid in (*pids, os.getpid())}) == 2
        assert await made.call("noise") == str(pids).replace("'", "")
    await until(lambda: not any(map(alive, pids)))
    assert "hello, operator" in capsys.readouterr().out


async def test_one_that_dies_is_started_again() -> None:
    async with running() as made:
        before = await made.pids()
        assert await made.failure("die") == "OUTCOME_UNKNOWN"
        after = await made.pids()
        assert after != before
        await until(lambda: not any(map(alive, before)))


async def test_a_line_without_an_end_ends_the_session_and_not_the_service() -> None:
    async with running() as made:
        before = await made.pids()
        assert await made.failure("long") == "OUTCOME_UNKNOWN"
        assert await made.pids() != before


async def test_one_that_is_deaf_is_made_to_end() -> None:
    async with running(call_ms=200) as made:
        pids = await made.pids()
        assert await made.failure("deaf") == "TIMEOUT"
    await until(lambda: not any(map(alive, pids)))


@pytest.mark.parametrize("command", [("/nowhere/at/all",), ("a\0b",), (sys.executable, "-c", "1")])
async def test_one_that_cannot_be_started_is_unavailable(command: tuple[str, ...]) -> None:
    async with running(command) as made:
        assert await made.peers.tools(None, made.server) == {}
        standing = made.peers.standing(None, made.server)
        assert standing.state == "unavailable"
        assert standing.reason


def test_it_is_given_the_variables_that_are_named_and_a_few_that_every_program_needs() -> None:
    variables = {"PATH": "/bin", "TOKEN": "1", "OTHER": "2", "DATABASE_URL": "3"}
    assert environment(McpServer("p", command=("x",), env=("TOKEN", "NOT_SET")), variables) == {
        "PATH": "/bin",
        "TOKEN": "1",
    }


async def test_nothing_is_left_when_the_greeting_is_called_off() -> None:
    async with running((sys.executable, "-c", "import time; time.sleep(600)")) as made:
        asking = asyncio.create_task(made.peers.tools(None, made.server))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
