"""Read the body of a Messages answer, in whatever pieces it comes."""

from __future__ import annotations

from typing import Any, Final

import orjson

from app.adapters.anthropic_messages.events import EventReader
from app.adapters.anthropic_messages.profile import MessagesProfile
from app.adapters.lenient_json import lenient_loads
from app.adapters.model_body import FIELDS, MARK, BodyReader, shown
from app.adapters.model_faults import malformed, no_completion
from app.adapters.sse import EventTooLarge, ServerSentEvent
from app.adapters.surrogates import Halves
from app.core.chunks import Chunk
from app.core.faults import ProviderError

_LONGEST: Final = max(map(len, FIELDS))


class AnswerReader(BodyReader):
    """Turns the bytes of one answer into chunks."""

    def __init__(self, profile: MessagesProfile, content_type: str = "text/event-stream") -> None:
        super().__init__(profile.max_event_bytes, content_type)
        self._events = EventReader()
        self._kept: list[bytes] = []
        """The body so far where it is no event stream, or does not show yet what it is."""
        self._kept_bytes = 0
        self._whole = False
        """Whether the body is one JSON object."""

    def _ended(self, out: list[Chunk]) -> None:
        if self._sse is not None:
            if (event := self._sse.finish()) is not None:
                self._last_event(event, out)
        elif self._whole:
            self._read_whole(b"".join(self._kept), out)
        else:
            start = shown(b"".join(self._kept))
            if not self._said_stream or not any(field.startswith(start) for field in (*FIELDS, MARK)):
                raise ProviderError(no_completion(start))

    def _keep(self, piece: bytes) -> None:
        self._kept.append(piece)
        self._kept_bytes += len(piece)
        if self._kept_bytes > self._max:
            raise EventTooLarge(self._max)

    def _begin(self, piece: bytes, out: list[Chunk]) -> None:
        """Find out what the body is, as soon as it shows."""
        self._keep(piece)
        if self._whole:
            return
        start = b"".join(self._kept)
        beginning = shown(start)
        if beginning.startswith(b"{"):
            self._whole = True
        elif beginning.startswith(FIELDS) or (self._said_stream and len(beginning) >= _LONGEST):
            self._stream(start, out)
        elif len(beginning) >= _LONGEST:
            raise ProviderError(no_completion(beginning))

    def _event(self, event: ServerSentEvent, out: list[Chunk]) -> None:
        if not (raw := event.data.strip()):
            return
        try:
            said = self._parsed(raw)
        except ValueError:
            if event.name == "ping":
                return
            if event.name != "error":
                raise ProviderError(malformed("an event is no JSON", raw)) from None
            said = {"error": raw.decode("utf-8", "replace")}
        if type(said) is not dict:
            raise ProviderError(malformed("an event is no JSON object", raw))
        kind = said.get("type")
        if event.name == "error" or (kind is None and "error" in said):
            kind = "error"
        self._events.read(kind if type(kind) is str else event.name, said, out, raw)
        self.over = self.complete = self._events.ended

    def _last_event(self, event: ServerSentEvent, out: list[Chunk]) -> None:
        """The last event lacks its end: it counts if it is whole, else the answer was cut there."""
        try:
            self._parsed(event.data)
        except ValueError:
            if event.name != "error":
                return
        self._event(event, out)

    def _read_whole(self, raw: bytes, out: list[Chunk]) -> None:
        """Take a whole message for an answer, from a server that does not stream."""
        try:
            said = self._parsed(shown(raw))
        except ValueError:
            raise ProviderError(malformed("the answer is no JSON", raw)) from None
        if said.get("error"):
            self._events.read("error", said, out)
        if said.get("type") != "message":
            raise ProviderError(no_completion(raw))
        self._events.message(said, out)
        self.is_answer = self.complete = True

    def _parsed(self, raw: bytes) -> Any:
        """The value of a JSON text. Raises ValueError."""
        if b'"tool_use"' in raw:
            return lenient_loads(raw)  # the fast parser would round a long integer among the arguments
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            value = lenient_loads(raw)
            if self._events.halves is None:
                self._events.halves = Halves()
            return value
