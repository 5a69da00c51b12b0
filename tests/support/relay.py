"""A network between a service and its database that a test holds up, slows down, cuts, and makes lossy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Self

from app.adapters.db.engine import database_url, driver_arguments

Loss = Literal["standstill", "silence", "reset", "cut"]
"""How an answer gets lost: nothing passes any more, nothing on its connection, that is reset, or every one is
cut and no new one let in.
"""


@dataclass(slots=True)
class _Losing:
    """An answer that is to be lost."""

    to: bytes
    due: Callable[[], Awaitable[object]]
    how: Loss
    on: asyncio.Task[None] | None = None
    """The connection on which it was asked for last."""
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """Passes bytes on between its own loopback port and a Postgres."""

    def __init__(self, url: str) -> None:
        self._to = driver_arguments(url)
        self._url = database_url(url)
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._connections: set[asyncio.Task[None]] = set()
        self._deaf: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._losing: _Losing | None = None
        self._asking = asyncio.Lock()
        self._delay_s = 0.0

    @property
    def url(self) -> str:
        """What the service is given as its database."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        there = self._url.set(drivername="postgresql", host="127.0.0.1", port=port, query={})
        return there.render_as_string(hide_password=False)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()

    def hold(self) -> None:
        """Let nothing through for a while; what was sent comes later."""
        self._flows.clear()

    def release(self) -> None:
        """Let all through again."""
        self._flows.set()
        self._refuses = False

    def cut(self, *, refuse: bool = False) -> None:
        """End every connection, and refuse new ones if that is asked for."""
        self._refuses = refuse
        for task in self._connections:
            task.cancel()

    def forget(self) -> None:
        """Lose what is sent on the connections that there are, and tell nobody; new ones are fine."""
        self._deaf |= self._connections

    def slow(self, seconds: float) -> None:
        """Let whatever the database says take so much longer; 0 for no longer."""
        self._delay_s = seconds

    def lose(self, to: bytes, due: Callable[[], Awaitable[object]], how: Loss) -> asyncio.Event:
        """Lose the answer to what has the words `to` in it, once `due` holds: it is asked before each piece.

        A commit that is `due` has taken place, and nobody in the service hears of it. Gives what is set then.
        """
        self._losing = _Losing(to, due, how)
        return self._losing.done

    async def _lost(self, task: asyncio.Task[None], service: asyncio.StreamWriter) -> bool:
        """Whether the service is not to hear what was just said on this connection."""
        losing = self._losing
        if losing is None or losing.on is not task:
            return False
        async with self._asking:
            if losing is not self._losing or not await losing.due():
                return False
            self._losing = None
        match losing.how:
            case "standstill":
                self.hold()
            case "silence":
                self._deaf.add(task)
            case "reset":
                end: socket.socket = service.get_extra_info("socket")
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                service.transport.abort()
            case "cut":
                self.cut(refuse=True)
        losing.done.set()
        return True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if not self._refuses:
                await self._pass(task, reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _pass(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, port = self._to["host"], self._to.get("port", 5432)
        if host.startswith("/"):
            there = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            there = await asyncio.open_connection(host, port)
        ways = [
            asyncio.create_task(self._copy(task, reader, there[1])),
            asyncio.create_task(self._copy(task, there[0], writer, answers=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there[1].close()  # before anything is waited for: the wait may be broken off
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            with contextlib.suppress(OSError):
                await there[1].wait_closed()

    async def _copy(
        self,
        task: asyncio.Task[None],
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        answers: bool = False,
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65_536):
                if answers and self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if self._losing is not None:
                    if not answers and self._losing.to in piece:
                        self._losing.on = task
                    if answers and await self._lost(task, sink):
                        continue
                await self._flows.wait()
                if task not in self._deaf:
                    sink.write(piece)
                    await sink.drain()
