"""A run's log as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.core.errors import Unavailable
from app.core.record import Entry, Reader
from app.services.feed import Batch
from app.services.follow import Follower

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


@dataclass(frozen=True, slots=True)
class View:
    """What of a log is sent, and how."""

    types: Collection[str] | None = None
    """Only events of these types; None is all."""
    callbacks: bool = False
    """Whether the callbacks that fired are sent instead of the events."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names for some of the types."""
    named: bool = True
    """Whether each frame has an `event:` line."""

    @property
    def plain(self) -> bool:
        """Whether it is the one that most clients have, whose frames are made once for all of them."""
        return self.types is None and not self.callbacks and not self.aliases and self.named

    def texts(self, reader: Reader, entries: Iterable[Entry]) -> list[str]:
        """Events or callbacks as JSON texts."""
        if self.callbacks:
            return [text for _, _, text, _ in reader.callbacks(entries, self.types)]
        return [text for _, _, text in reader.events(entries, self.types, self.aliases)]

    def frames(self, batch: Batch, reader: Reader, run_id: str) -> bytes:
        """The batch as it is sent."""
        if self.plain:
            return batch.frames(reader)
        out = []
        for seq, name, text, last in self._items(reader, batch.entries):
            # An event is told when all of it is: a client that goes away in its middle gets it again.
            id_ = f"id: {run_id}:{seq}\n" if last else ""
            event = f"event: {name}\n" if self.named else ""
            out.append(f"{id_}{event}data: {text}\n\n")
        return "".join(out).encode()

    def _items(self, reader: Reader, entries: Iterable[Entry]) -> Iterator[tuple[int, str, str, bool]]:
        if self.callbacks:
            yield from reader.callbacks(entries, self.types)
        else:
            for seq, name, text in reader.events(entries, self.types, self.aliases):
                yield seq, name, text, True

    def end(self, last_id: str) -> bytes:
        """What says that nothing follows, after the event with this id.

        Where that event may have been left out, the id is said here: who comes back with it learns that there
        is nothing more, instead of beginning anew for ever.
        """
        return END if self.plain else f"id: {last_id}\n".encode() + END


class EventStream(Response):
    """A response that follows a run until its end, or until either side goes away."""

    def __init__(
        self,
        follower: Follower,
        run_id: str,
        *,
        view: View,
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
            if not isinstance(failure, Unavailable):
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
                if frames := self._view.frames(batch, self._follower.reader, self._run_id):
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
