"""What comes out of a command's pipes."""

from __future__ import annotations

import asyncio
from typing import Final, cast

HELD_BYTES: Final = 256 * 1024
"""Output that may wait to be read; the command waits then."""


class Output(asyncio.Protocol):
    """A pipe that is read no faster than it is taken."""

    def __init__(self, drain_s: float) -> None:
        """`drain_s` is how long more is awaited once the command has ended: others may hold its pipe."""
        self._drain_s = drain_s
        self._ended = False
        self._pieces: list[bytes] = []
        self._held = 0
        self._over = False
        """Whether no more comes."""
        self._wake: asyncio.Future[None] | None = None
        self._transport: asyncio.ReadTransport | None = None

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        loop = asyncio.get_running_loop()
        while not self._pieces and not self._over:
            self._wake = loop.create_future()
            # Counted only while it is waited for: what a slow reader has not taken yet is not lost.
            giving_up = loop.call_later(self._drain_s, self._finish) if self._ended else None
            try:
                await self._wake
            finally:
                if giving_up is not None:
                    giving_up.cancel()
        piece = b"".join(self._pieces)
        self._pieces.clear()
        if self._held > HELD_BYTES and not self._over and self._transport is not None:
            self._transport.resume_reading()
        self._held = 0
        return piece

    def writer_ended(self) -> None:
        """The command has ended; what it wrote may still come."""
        self._ended = True
        self._notify()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The pipe is open."""
        self._transport = cast(asyncio.ReadTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Something was written."""
        self._pieces.append(data)
        before, self._held = self._held, self._held + len(data)
        if before <= HELD_BYTES < self._held and self._transport is not None:
            self._transport.pause_reading()
        self._notify()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody can write any more."""
        self._finish()

    def _finish(self) -> None:
        self._over = True
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Input(asyncio.BaseProtocol):
    """A pipe that is written to; what nobody reads of it is no fault."""

    def __init__(self) -> None:
        self.lost = False
        """Whether it is closed on one of its ends."""

    def connection_lost(self, exc: Exception | None) -> None:
        """All is written, or nobody can read any more."""
        self.lost = True


class Kept(asyncio.Protocol):
    """A pipe that is always read, and whose end is kept."""

    def __init__(self, most: int) -> None:
        """`most` is in bytes."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nobody can write any more."""
        self._most = most
        self._bytes = bytearray()
        self.cut = False
        """Whether more came than is kept."""

    @property
    def text(self) -> str:
        """What is kept."""
        return self._bytes.decode("utf-8", "replace")

    def data_received(self, data: bytes) -> None:
        """Something was written."""
        self._bytes += data
        if len(self._bytes) > self._most:
            del self._bytes[: len(self._bytes) - self._most]
            self.cut = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody can write any more."""
        if not self.closed.done():
            self.closed.set_result(None)
