"""Read the body of an answer, in whatever pieces it comes: what is the same on every wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from app.adapters.model_faults import malformed
from app.adapters.sse import EventTooLarge, ServerSentEvent, SseDecoder
from app.core.chunks import Chunk, KeepAlive
from app.core.faults import Fault, ProviderError

SPACE: Final = b" \t\r\n"
MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark, which may stand before anything."""
FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
"""What the lines of an event stream begin with."""


class BodyReader(ABC):
    """Turns the bytes of one answer into chunks: a `model_exchange.Reader`.

    What the body is shows in its first bytes, for content types cannot be relied on: an event stream, one
    JSON object, or neither. After each call look at `fault`, which follows on the chunks that were returned,
    and at `over`.
    """

    def __init__(self, max_event_bytes: int, content_type: str) -> None:
        self._max = max_event_bytes
        self._said_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._sse: SseDecoder | None = None
        """None as long as the body is not known to be an event stream."""
        self.fault: Fault | None = None
        self.over = False
        """Whether nothing more is to be read: the end mark came, the body ended, or there is a fault."""
        self.complete = False
        """Whether the end mark came; what follows in the body is of no interest."""
        self.is_answer = self._said_stream
        """Whether it is certain that this is an answer in a form that we take."""

    def feed(self, piece: bytes) -> list[Chunk]:
        """What the piece says; a `KeepAlive` when that is nothing."""
        out: list[Chunk] = []
        try:
            if self._sse is None:
                self._begin(piece, out)
            else:
                self._read_stream(self._sse, piece, out)
        except (ProviderError, EventTooLarge) as error:
            self._fail(error)
        return out or [KeepAlive()]

    def finish(self) -> list[Chunk]:
        """What is left when the body has ended."""
        out: list[Chunk] = []
        try:
            self._ended(out)
        except (ProviderError, EventTooLarge) as error:
            self._fail(error)
        self.over = True
        return out

    def _fail(self, error: ProviderError | EventTooLarge) -> None:
        if isinstance(error, ProviderError):
            self.fault = error.fault
        else:
            self.fault = malformed(str(error), type="too_large")
        self.over = True

    def _stream(self, start: bytes, out: list[Chunk]) -> None:
        """Read the body as an event stream from now on; `start` is what has come of it."""
        self.is_answer = True
        self._sse = SseDecoder(self._max)
        self._read_stream(self._sse, start, out)

    def _read_stream(self, sse: SseDecoder, piece: bytes, out: list[Chunk]) -> None:
        for event in sse.feed(piece):
            self._event(event, out)
            if self.over:
                return

    @abstractmethod
    def _begin(self, piece: bytes, out: list[Chunk]) -> None:
        """Take a piece of a body that is no event stream, or does not show yet what it is."""

    @abstractmethod
    def _event(self, event: ServerSentEvent, out: list[Chunk]) -> None:
        """Read one event of a stream."""

    @abstractmethod
    def _ended(self, out: list[Chunk]) -> None:
        """Read what is left when the body has ended."""


def shown(start: bytes) -> bytes:
    """A body's beginning without what may stand before anything."""
    return start.removeprefix(MARK).lstrip(SPACE)
