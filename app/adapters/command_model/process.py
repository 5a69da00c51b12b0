"""One run of a command: its pipes, its end, and the group of processes that it is the first of."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Final

from app.adapters.command_model.command import Command
from app.adapters.command_model.pipes import Input, Kept, Output
from app.adapters.command_model.prompt import Given
from app.core.json_text import storable
from app.core.masking import Mask

DRAIN_S: Final = 1.0
"""How long output is awaited once the command has ended, and its end once the output is over."""
KILLED_S: Final = 2.0
"""How long a group that was killed is waited for."""
_POLL_S: Final = 0.02


class Process:
    """A command in a process group and session of its own.

    The loops' own subprocesses would not do: one of them hands on files that are open here, and gives sockets
    where programs expect pipes.
    """

    def __init__(self, command: Command) -> None:
        """Nothing is started yet."""
        settings = command.settings
        self._command = command
        self._output = Output(DRAIN_S)
        longest = max((len(secret) for secret in command.secrets), default=0)
        # Four bytes make one character at most, and a mask may be shorter than its secret.
        self._errors = Kept(4 * (settings.max_stderr_bytes + 2 * longest))
        self._uncertain = longest
        """Characters at the beginning of what was cut that may be the rest of a secret."""
        self._popen: subprocess.Popen[bytes] | None = None
        self._connecting: asyncio.Future[None] | None = None
        self._input = Input()
        self._input_transport: asyncio.WriteTransport | None = None
        self._reading: list[asyncio.ReadTransport] = []
        loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = loop.create_future()
        self.group = 0
        """The number of its process group; 0 before it was started."""

    def start(self, given: Given) -> None:
        """Start it. Raises OSError and ValueError."""
        self._popen = subprocess.Popen(
            given.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=self._command.settings.cwd,
            env=self._command.env,
            start_new_session=True,
        )
        self.group = self._popen.pid
        waiting = threading.Thread(
            target=_wait_for,
            args=(self._popen, asyncio.get_running_loop(), self._on_exit),
            name=f"command-{self.group}",
            daemon=True,
        )
        waiting.start()

    async def connect(self, given: Given) -> None:
        """Begin to give it its input, and to take what it says."""
        # To its end, also when nobody waits for it any more: pipes that are half connected cannot be closed.
        self._connecting = asyncio.ensure_future(self._connect(given))
        await asyncio.shield(self._connecting)

    async def _connect(self, given: Given) -> None:
        popen, loop = self._popen, asyncio.get_running_loop()
        assert popen is not None
        output, _ = await loop.connect_read_pipe(lambda: self._output, popen.stdout)
        errors, _ = await loop.connect_read_pipe(lambda: self._errors, popen.stderr)
        self._input_transport, _ = await loop.connect_write_pipe(lambda: self._input, popen.stdin)
        self._reading = [output, errors]
        if given.stdin:
            self._input_transport.write(given.stdin)
        self._input_transport.close()  # once all of it is written

    async def read(self) -> bytes:
        """The next piece of its output; empty at the end."""
        return await self._output.read()

    async def exit(self) -> int | None:
        """Its exit status, negative for a signal, once its output is over; None if it still goes on.

        Its complaints are complete then.
        """
        await asyncio.wait([self._exited, self._errors.closed], timeout=DRAIN_S)
        return None if self._popen is None else self._popen.returncode

    def complaints(self) -> str:
        """The end of its standard error, without secrets."""
        most = self._command.settings.max_stderr_bytes
        text: str = Mask(self._command.secrets).whole(self._errors.text)
        if self._errors.cut:
            text = text[self._uncertain :]
        return storable(text[-most:].strip()) if most else ""

    async def end(self, *, by_itself_s: float) -> None:
        """Have the whole group end: by itself if it does so in time, else by SIGTERM, else by SIGKILL."""
        gone = False
        try:
            if self._connecting is not None:
                await asyncio.wait([self._connecting])
            if by_itself_s:
                await asyncio.wait([self._exited], timeout=by_itself_s)
            gone = not self._signal(signal.SIGTERM) or await self._gone(self._command.settings.grace_s)
        finally:
            if not gone:
                self._signal(signal.SIGKILL)
            self._close()
        if not gone:
            await self._gone(KILLED_S)

    def _signal(self, number: int) -> bool:
        """Signal the whole group; False if there is none any more."""
        try:
            os.killpg(self.group, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def _gone(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._signal(0):
            if loop.time() >= end:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _on_exit(self) -> None:
        """What it started may go on, and hold its pipes: they are not waited for."""
        if not self._exited.done():
            self._exited.set_result(None)
        self._output.writer_ended()

    def _close(self) -> None:
        for transport in self._reading:
            transport.close()
        if self._input_transport is not None and not self._input.lost:
            self._input_transport.abort()


def _wait_for(
    popen: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, tell: Callable[[], None]
) -> None:
    popen.wait()
    with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody wants to know any more
        loop.call_soon_threadsafe(tell)
