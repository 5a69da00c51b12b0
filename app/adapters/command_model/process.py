"""One run of a command: its pipes, its end, and the group of processes that it is the first of."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any, Final, cast

from app.adapters.command_model.command import Command
from app.adapters.command_model.prompt import Given
from app.adapters.model_faults import masked

HELD_BYTES: Final = 256 * 1024
"""Output that may wait to be read; the command waits then."""
DRAIN_S: Final = 1.0
"""How long output is awaited once the command has ended: others may hold its pipe."""
KILLED_S: Final = 2.0
"""How long a group that was killed is waited for."""
_POLL_S: Final = 0.02


class Process(asyncio.SubprocessProtocol):
    """A command in a process group and session of its own.

    Its standard error is always read, and its end kept; its output is read no faster than it is taken.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        self._transport: asyncio.SubprocessTransport | None = None
        self._output: list[bytes] = []
        self._held = 0
        self._over = False
        """Whether no more output comes."""
        self._errors = bytearray()
        self._cut = False
        """Whether standard error began earlier than what is kept of it."""
        self._wake: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = loop.create_future()
        self._draining: asyncio.TimerHandle | None = None
        self.group = 0

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return None if self._transport is None else self._transport.get_returncode()

    async def start(self, given: Given, on_start: Callable[[int], None]) -> None:
        """Start it, tell its group, and begin to give it its input. Raises OSError and ValueError."""
        settings = self._command.settings
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            *given.argv,
            cwd=str(settings.cwd),
            env=dict(self._command.env),
            start_new_session=True,
        )
        self.group = transport.get_pid()
        on_start(self.group)
        stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
        if given.stdin:
            stdin.write(given.stdin)
        stdin.close()  # once it is written

    async def read(self) -> bytes:
        """The next piece of its output; empty at the end."""
        while not self._output and not self._over:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        piece = b"".join(self._output)
        self._output.clear()
        if self._held > HELD_BYTES and not self._over:
            self._stdout().resume_reading()
        self._held = 0
        return piece

    async def exit(self) -> int | None:
        """Its exit status, once its output is over; None if it goes on without saying anything."""
        await asyncio.wait([self._exited], timeout=DRAIN_S)
        return self.status

    def complaints(self) -> str:
        """The end of its standard error, without secrets."""
        secrets, most = self._command.secrets, self._command.settings.max_stderr_bytes
        text: str = masked(self._errors.decode("utf-8", "replace"), secrets)
        if self._cut:
            text = text[self._longest :]  # what stands first may be the rest of a secret
        return text[-most:].strip() if most else ""

    def signal(self, number: int) -> bool:
        """Signal the whole group; False if there is none any more."""
        try:
            os.killpg(self.group, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def end(self, *, by_itself_s: float) -> None:
        """Have the whole group end: by itself if it does so in time, else by SIGTERM, else by SIGKILL."""
        gone = False
        try:
            if by_itself_s:
                await asyncio.wait([self._exited], timeout=by_itself_s)
            gone = not self.signal(signal.SIGTERM) or await self._gone(self._command.settings.grace_s)
        finally:
            if not gone:
                self.signal(signal.SIGKILL)
            if self._draining is not None:
                self._draining.cancel()
            if self._transport is not None:
                self._transport.close()
        if not gone:
            await self._gone(KILLED_S)

    async def _gone(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.signal(0):
            if loop.time() >= end:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It was started."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It wrote something."""
        if fd == 2:
            self._keep(data)
            return
        self._output.append(data)
        before, self._held = self._held, self._held + len(data)
        if before <= HELD_BYTES < self._held:
            self._stdout().pause_reading()
        self._notify()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """It closed a pipe, or does not read its input to the end, which is its own business."""
        if fd == 1:
            self._finish()

    def process_exited(self) -> None:
        """It has ended; what it started may go on, and hold its pipes."""
        if not self._exited.done():
            self._exited.set_result(None)
        self._draining = asyncio.get_running_loop().call_later(DRAIN_S, self._finish)

    def _finish(self) -> None:
        self._over = True
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _stdout(self) -> asyncio.ReadTransport:
        transport: Any = self._transport
        return cast(asyncio.ReadTransport, transport.get_pipe_transport(1))

    @property
    def _longest(self) -> int:
        return max((len(secret.encode()) for secret in self._command.secrets), default=0)

    def _keep(self, data: bytes) -> None:
        self._errors += data
        # Four bytes make one character at most, and a mask may be shorter than its secret.
        most = 4 * (self._command.settings.max_stderr_bytes + 2 * self._longest)
        if len(self._errors) > most:
            del self._errors[: len(self._errors) - most]
            self._cut = True
