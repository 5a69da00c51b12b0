"""Run an MCP server as a process of ours and speak with it over its standard input and output.

The program is the operator's; its lines are nobody's: each is of bounded length, and none is trusted.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from app.adapters.mcp.trouble import Kind, Trouble
from app.adapters.mcp.wire import MAX_BYTES
from app.core.mcp_server import McpServer

GRACE_S: Final = 2.0
"""How long the process may take to end by itself, and then again until it is killed."""
LOOK_S: Final = 0.1
"""How often it is looked whether the process has ended."""
LAST_WORDS_S: Final = 0.5
"""How long its output is read on after its end."""
TOLD: Final = 500
"""Characters of a line of its standard error that are logged."""
INHERITED: Final = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER")
"""Variables that every process is given."""

log = structlog.get_logger("mcp")

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


def environment(server: McpServer, variables: Mapping[str, str]) -> dict[str, str]:
    """What the process sees of our variables."""
    return {name: variables[name] for name in (*INHERITED, *server.env) if name in variables}


@asynccontextmanager
async def process_of(server: McpServer, ended: asyncio.Event) -> AsyncIterator[Streams]:
    """The SDK's two streams for the block; `ended` is set when nothing more can come. Raises Trouble."""
    try:
        process = await asyncio.create_subprocess_exec(
            *server.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=server.cwd,
            env=environment(server, os.environ),
            limit=MAX_BYTES,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        words = f"the program {server.command[0]!r} cannot be started: {error}"
        raise Trouble(Kind.NOT_CONFIGURED, words) from None
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(process, incoming, ended))
    tasks = [
        reading,
        asyncio.create_task(_write(process, outgoing)),
        asyncio.create_task(_watch(process, reading)),
    ]
    errors = asyncio.create_task(_log_errors(process, server.name))
    try:
        yield received, sent
    finally:
        ended.set()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.shield(_ended(process, errors))
        for stream in (incoming, received, sent, outgoing):
            stream.close()


async def _read(
    process: asyncio.subprocess.Process, incoming: MemoryObjectSendStream[Any], ended: asyncio.Event
) -> None:
    assert process.stdout is not None
    try:
        async with incoming:
            # A line that is too long cannot be told from those after it, and ends the session.
            with suppress(ValueError, ConnectionError, anyio.BrokenResourceError):
                while line := await process.stdout.readline():
                    if not line.isspace():
                        await incoming.send(_message(line))
    finally:
        ended.set()


async def _watch(process: asyncio.subprocess.Process, reading: asyncio.Task[None]) -> None:
    """End the reading soon after the process: what it has started may hold its output open."""
    await _exit(process)
    await asyncio.wait([reading], timeout=LAST_WORDS_S)
    reading.cancel()


async def _exit(process: asyncio.subprocess.Process) -> None:
    """Wait for the process alone; its own `wait` waits for the ends of its pipes too."""
    while process.returncode is None:  # noqa: ASYNC110 - there is nothing that tells of it
        await asyncio.sleep(LOOK_S)


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(
    process: asyncio.subprocess.Process, outgoing: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin is not None
    async with outgoing:
        with suppress(ConnectionError, RuntimeError):
            async for each in outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode(errors="replace") + b"\n")
                await process.stdin.drain()


async def _log_errors(process: asyncio.subprocess.Process, name: str) -> None:
    """What the program says beside the protocol is for the operator."""
    assert process.stderr is not None
    with suppress(ConnectionError):
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # One without an end; what was read of it is gone.
                continue
            if not line:
                return
            log.info("said by an MCP server", server=name, line=line.decode(errors="replace").strip()[:TOLD])


async def _ended(process: asyncio.subprocess.Process, errors: asyncio.Task[None]) -> None:
    """Close its input, which asks it to end; then ask, then make its whole group end."""
    if process.stdin is not None:
        process.stdin.close()
    for ask in (None, signal.SIGTERM, signal.SIGKILL):
        if ask is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, ask)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await _exit(process)
                break
    # What it has started may live on in its group, and hold our pipes.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    errors.cancel()
    await asyncio.wait([errors])
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
