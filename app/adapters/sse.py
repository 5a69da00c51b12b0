"""Decode server-sent events from bytes as they come.

Takes any division of the bytes into pieces, also inside a character or a line end, all three line ends, a
byte-order mark, comments, several data lines per event, and fields that it does not know. Each byte is looked
at a fixed number of times, however long a line is and however finely it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

DEFAULT_MAX_EVENT_BYTES: Final = 16 * 1024 * 1024

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(slots=True)
class ServerSentEvent:
    """One event."""

    data: bytes
    """Its data lines, joined by line feeds; UTF-8 unless the sender is at fault."""
    name: str = "message"
    id: str | None = None
    """What this event's own `id:` line says."""


class EventTooLarge(ValueError):
    """One event is longer than the decoder's limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"one event is longer than {limit} bytes")
        self.limit = limit


class SseDecoder:
    """Turns bytes into events.

    Comments, `retry:` and events without data leave no trace here: that bytes came at all is what tells that
    the sender is alive.
    """

    def __init__(self, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._pieces: list[bytes] = []
        """The beginning of an event whose end has not come, with line feeds as its only line ends."""
        self._size = 0
        self._after_cr = False
        """The last piece ended with a carriage return, so a line feed that comes next belongs to it."""
        self._at_start = True

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """The events that `piece` completes. Raises `EventTooLarge`, after which the decoder is of no use.

        Iterate to the end before the next call.
        """
        if self._after_cr or b"\r" in piece:
            piece = self._with_line_feeds(piece)
        if b"\n\n" not in piece and not (
            piece[:1] == b"\n" and self._pieces and self._pieces[-1][-1:] == b"\n"
        ):
            if piece:
                self._keep(piece)
            return
        if self._pieces:
            self._pieces.append(piece)
            piece = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
        *blocks, rest = piece.split(b"\n\n")
        for block in blocks:
            event = self._event(block)
            if event is not None:
                yield event
        if rest:
            self._keep(rest)

    def finish(self) -> ServerSentEvent | None:
        """The event that the stream's end cut off or ended, to be taken for what it is worth."""
        block = b"".join(self._pieces)
        self._pieces.clear()
        return self._event(block.removesuffix(b"\n"))

    def _with_line_feeds(self, piece: bytes) -> bytes:
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if piece:
            self._after_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._max:
            raise EventTooLarge(self._max)

    def _event(self, block: bytes) -> ServerSentEvent | None:
        if len(block) > self._max:
            raise EventTooLarge(self._max)
        if self._at_start and block:
            block = block.removeprefix(_BOM)
            self._at_start = False
        if block.startswith(b"data: ") and b"\n" not in block:
            return ServerSentEvent(block[6:])
        return _slowly(block)


def _slowly(block: bytes) -> ServerSentEvent | None:
    """The event of a block that is not a single `data: ` line."""
    data: list[bytes] = []
    event = ServerSentEvent(b"")
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            event.name = value.decode("utf-8", "replace") or "message"
        elif field == b"id" and b"\0" not in value:
            event.id = value.decode("utf-8", "replace")
    if not data:
        return None
    event.data = b"\n".join(data)
    return event
