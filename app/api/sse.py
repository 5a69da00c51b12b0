"""A run's log as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.core.errors import EventsGone, Unavailable
from app.core.record import Entry, Reader
from app.services.feed import Batch
from app.services.follow import Follower, Shows

RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": hb\n\n"
END = b"event: stream.end\ndata: {}\n\n"
STALLED_S = 60
"""How long one write may wait for a client that does not read; it resumes when it comes back."""

HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class LogView(Protocol):
    """What of a log is sent, and how; one for each client, as it follows the entries."""

    @property
    def reader(self) -> Shows:
        """What has to see every entry."""

    @property
    def types(self) -> Collection[str] | None:
        """The events that are counted; None is all."""

    @property
    def pace_s(self) -> float:
        """Seconds between two batches of what comes live; 0 sends all as it comes."""

    def texts(self, entries: Iterable[Entry]) -> list[str]:
        """What is shown of entries, as JSON texts."""

    def frames(self, batch: Batch, run_id: str) -> bytes:
        """The batch as it is sent."""

    def end(self, last_id: str) -> bytes:
        """What says that nothing follows, after the event with this id.

        Where that event may have been left out, the id is said here: who comes back with it learns that there
        is nothing more, instead of beginning anew for ever.
        """


@dataclass(frozen=True, slots=True)
class View:
    """Events, or the callbacks that fired: a `LogView`."""

    reader: Reader
    types: Collection[str] | None = None
    """Only events of these types; None is all."""
    callbacks: bool = False
    """Whether the callbacks that fired are sent instead of the events."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names for some of the types."""
    named: bool = True
    """Whether each frame has an `event:` line."""
    pace_s: float = 0

    @property
    def plain(self) -> bool:
        """Whether it is the one that most clients have, whose frames are made once for all of them."""
        return self.types is None and not self.callbacks and not self.aliases and self.named

    def texts(self, entries: Iterable[Entry]) -> list[str]:
        """Events or callbacks as JSON texts."""
        if self.callbacks:
            return [text for _, _, text, _ in self.reader.callbacks(entries, self.types)]
        return [text for _, _, text in self.reader.events(entries, self.types, self.aliases)]

    def frames(self, batch: Batch, run_id: str) -> bytes:
        """See `LogView`."""
        if self.plain:
            return batch.frames(self.reader)
        # An event is told when all of it is: a client that goes away in its middle gets it again.
        return b"".join(
            frame(f"{run_id}:{seq}" if last else None, name if self.named else None, text)
            for seq, name, text, last in self._items(batch.entries)
        )

    def _items(self, entries: Iterable[Entry]) -> Iterator[tuple[int, str, str, bool]]:
        if self.callbacks:
            yield from self.reader.callbacks(entries, self.types)
        else:
            for seq, name, text in self.reader.events(entries, self.types, self.aliases):
                yield seq, name, text, True

    def end(self, last_id: str) -> bytes:
        """See `LogView`."""
        return END if self.plain else f"id: {last_id}\n".encode() + END


def frame(id: str | None, name: str | None, text: str) -> bytes:
    """A server-sent event."""
    lines = [f"id: {id}\n" if id else "", f"event: {name}\n" if name else "", f"data: {text}\n\n"]
    return "".join(lines).encode()


class EventStream(Response):
    """A response that follows a run until its end, or until either side goes away."""

    def __init__(
        self,
        follower: Follower,
        run_id: str,
        *,
        view: LogView,
        heartbeat_s: float,
        closing: asyncio.Event,
        headers: Mapping[str, str],
    ) -> None:
        """`closing` is set when the service stops: the stream ends without `stream.end`, to be resumed."""
        super().__init__()
        self._follower = follower
        self._run_id = run_id
        self._view = view
        self._heartbeat_s = heartbeat_s
        self._closing = closing
        self._more_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        extra = [(name.lower().encode(), value.encode()) for name, value in self._more_headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *extra]})
        tasks = {
            asyncio.create_task(self._send_all(send)),
            asyncio.create_task(_gone(receive)),
            asyncio.create_task(_set(self._closing)),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        # Whatever ended it, the client can go on where it was: only `stream.end` says that nothing follows.
        failures = [failure for task in done if (failure := task.exception()) is not None]
        if any(isinstance(failure, TimeoutError | OSError | RuntimeError) for failure in failures):
            return  # nobody reads, or nobody is there: the server cuts the connection
        for failure in failures:
            if not isinstance(failure, Unavailable | EventsGone):
                raise failure
        with suppress(OSError, RuntimeError):
            await send({"type": "http.response.body", "body": b""})

    async def _send_all(self, send: Send) -> None:
        await self._write(send, RETRY)
        batches = self._follower.batches(self._heartbeat_s)
        last_seq = 0
        async with aclosing(batches):
            async for batch in batches:
                if batch is None:
                    await self._write(send, HEARTBEAT)
                    continue
                last_seq = batch.last_seq
                if frames := self._view.frames(batch, self._run_id):
                    await self._write(send, frames)
        await self._write(send, self._view.end(f"{self._run_id}:{last_seq}"))

    async def _write(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(STALLED_S):
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _set(event: asyncio.Event) -> None:
    await event.wait()
