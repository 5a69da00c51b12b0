"""The service as a process of its own, to be killed and stopped."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.service import frames

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """`branchline serve` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, client: httpx.AsyncClient) -> None:
        self.process = process
        self.http = client

    async def started(self, branch: str, kind: str, body: dict[str, Any]) -> str:
        """Start a run and do not wait for it; its id."""
        return await self.posted(f"/v1/branches/{branch}/{kind}", body)

    async def posted(self, path: str, body: dict[str, Any]) -> str:
        """The same at any address."""
        answer = await self.http.post(path, json=body, headers={"Prefer": "respond-async"})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def follow(self, run_id: str, last: str) -> list[dict[str, Any]]:
        """The events of a run up to the first one of a type."""
        seen = []
        async with self.http.stream(
            "GET", f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}
        ) as answer:
            async for frame in frames(answer.aiter_lines()):
                if frame.event == "stream.end":
                    break
                seen.append(frame.data)
                if frame.event == last:
                    break
        return seen


def serving(database_url: str, data_dir: Path, /, **environment: str) -> AbstractAsyncContextManager[Process]:
    """A process that serves on a free port, for the block."""
    return _serving(ROOT, Path(os.devnull), database_url, data_dir, environment)


def serving_from(
    code: Path, database_url: str, data_dir: Path, /, **environment: str
) -> AbstractAsyncContextManager[Process]:
    """The same of another tree than this one."""
    return _serving(code, Path(os.devnull), database_url, data_dir, environment)


def serving_logged(
    log: Path, database_url: str, data_dir: Path, /, **environment: str
) -> AbstractAsyncContextManager[Process]:
    """The same, with what it logs added to a file."""
    return _serving(ROOT, log, database_url, data_dir, environment)


@asynccontextmanager
async def _serving(
    code: Path, log: Path, database_url: str, data_dir: Path, environment: Mapping[str, str]
) -> AsyncIterator[Process]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = ("--port", str(port), "--data-dir", str(data_dir))
    settings = {
        "PYTHONPATH": str(code),
        "DATABASE_URL": database_url,
        "BRANCHLINE_TOOL_MODULES": "tests.support.tools",
        "BRANCHLINE_LEASE_MS": "1000",
        **environment,
    }
    process = await _started(code, log, where, settings)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        try:
            await _ready(process, client)
            yield Process(process, client)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _started(
    code: Path, log: Path, where: Sequence[str], settings: Mapping[str, str]
) -> asyncio.subprocess.Process:
    told = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "app.cli", "serve", *where),
            cwd=code,
            env={**os.environ, **settings},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=told,
        )
    finally:
        os.close(told)


async def _ready(process: asyncio.subprocess.Process, client: httpx.AsyncClient) -> None:
    for _ in range(3_000):
        assert process.returncode is None, "the service did not start"
        try:
            if (await client.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.02)
    raise AssertionError("the service did not become ready")
