"""Thousands of clients that follow runs in which nothing happens: what they cost their process."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.process import Process, serving

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

SUBSCRIBERS = 2_000
MOST_BYTES = 50_000
"""Of memory, for each."""
RUNS = 20
IDLE: list[dict[str, Any]] = [{"text": "one"}, {"wait_ms": 600_000}, {"end": "stop"}]


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for as many connections, in this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * SUBSCRIBERS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("too few open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def resident(process: Process) -> float:
    shown = (await process.http.get("/metrics")).text
    (found,) = re.findall(r"^process_resident_memory_bytes (\S+)$", shown, re.MULTILINE)
    return float(found)


async def subscribed(process: Process, path: str) -> asyncio.StreamWriter:
    """A connection on which the first token has been read."""
    url = process.http.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"Host: {url.host}:{url.port}\r\nConnection: close\r\nAccept: text/event-stream\r\n\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\n{head}".encode())
    try:
        await reader.readuntil(b"event: TOKEN\n")
    except asyncio.IncompleteReadError as cut:
        raise AssertionError(cut.partial) from None
    return writer


@pytest.mark.parametrize("roles", [("all",), ("api", "worker")], ids=["executed there", "executed elsewhere"])
async def test_idle_subscribers_are_cheap(
    database_url: str, tmp_path: Path, many_files: None, roles: tuple[str, ...]
) -> None:
    async with AsyncExitStack() as stack:
        process, *_ = [
            await stack.enter_async_context(
                serving(database_url, tmp_path / role, BRANCHLINE_ROLE=role, BRANCHLINE_LEASE_MS="15000")
            )
            for role in roles
        ]
        spec = {
            "provider": "scripted",
            "model": "idle",
            "options": {"streams": [{"attempts": [IDLE]}]},
            "lifecycle": {"timeout": None},
        }
        assert (await process.http.put("/v1/models/idle", json=spec)).status_code == 201
        paths = []
        for _ in range(RUNS):
            branch = (await process.http.post("/v1/branches", json={"chat_model": "idle"})).json()["id"]
            run = await process.started(branch, "operate", {"instruction": "talk"})
            paths.append(f"/v1/runs/{run}/events")
        warm = [await subscribed(process, path) for path in paths]
        connection = await asyncpg.connect(database_url)
        before, connections = await resident(process), await _connections(connection)
        writers: list[asyncio.StreamWriter] = []
        for start in range(0, SUBSCRIBERS, 50):
            writers += await asyncio.gather(
                *(subscribed(process, paths[number % RUNS]) for number in range(start, start + 50))
            )
        each = (await resident(process) - before) / SUBSCRIBERS
        assert each <= MOST_BYTES
        assert await _connections(connection) <= connections
        for writer in (*warm, *writers):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await connection.close()
        print(f"\n{roles[0]}: {each / 1000:.1f} kB each")


async def _connections(connection: asyncpg.Connection[Any]) -> int:
    found: int = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    )
    return found
