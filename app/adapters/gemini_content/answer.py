"""Read the body of an answer, in whatever pieces it comes."""

from __future__ import annotations

from typing import Any, Final

import orjson

from app.adapters.gemini_content.events import EventReader
from app.adapters.model_faults import malformed, no_completion
from app.adapters.sse import EventTooLarge, ServerSentEvent, SseDecoder
from app.core import json_text
from app.core.chunks import Chunk, EndMark, KeepAlive
from app.core.faults import Fault, ProviderError

_SPACE: Final = b" \t\r\n"
_MARK: Final = b"\xef\xbb\xbf"
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")


class AnswerReader:
    """Turns the bytes of one answer into chunks.

    What the body is shows in its first bytes: an event stream, one JSON object, or something that is refused.
    After each call look at `fault`, which follows on the chunks that were returned, and at `over`.
    """

    def __init__(self, max_event_bytes: int, content_type: str = "text/event-stream") -> None:
        self._max = max_event_bytes
        self._said_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._events = EventReader()
        self._sse: SseDecoder | None = None
        self._start = bytearray()
        """What came as long as it is not known to be an event stream."""
        self._is_object = False
        """Whether the body is one JSON object, as far as its beginning tells."""
        self.fault: Fault | None = None
        self.over = False
        """Whether nothing more is to be read: the body ended, or there is a fault."""
        self.complete = False
        """Whether the model said why it stopped and the body ended."""
        self.is_answer = self._said_stream
        """Whether it is certain that this is an answer in a form that we take."""

    def feed(self, piece: bytes) -> list[Chunk]:
        """What the piece says; a `KeepAlive` when that is nothing."""
        out: list[Chunk] = []
        try:
            if self._sse is None:
                self._begin(piece, out)
            else:
                self._stream(self._sse, piece, out)
        except (ProviderError, EventTooLarge) as error:
            self._fail(error)
        return out or [KeepAlive()]

    def finish(self) -> list[Chunk]:
        """What is left when the body has ended; an `EndMark` when a reason to stop had come."""
        out: list[Chunk] = []
        try:
            if self._sse is not None:
                if (event := self._sse.finish()) is not None and _is_whole(event):
                    self._event(event, out)
            elif self._start.strip(_SPACE) or not self._said_stream:
                self._whole(bytes(self._start), out)
            if self._events.finished:
                out.append(EndMark())
                self.complete = True
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

    def _begin(self, piece: bytes, out: list[Chunk]) -> None:
        """Find out what the body is."""
        self._start += piece
        if self._is_object:
            if len(self._start) > self._max:
                raise EventTooLarge(self._max)
            return
        start = bytes(self._start)
        shown = start.removeprefix(_MARK).lstrip(_SPACE)
        if shown.startswith(_FIELDS):
            self.is_answer = True
            self._sse = SseDecoder(self._max)
            self._stream(self._sse, start, out)
        elif shown.startswith(b"["):
            words = "the answer is a JSON array: the server pays no heed to alt=sse; check base_url"
            raise ProviderError(malformed(words, shown, type="not_an_event_stream"))
        elif shown.startswith(b"{"):
            self._is_object = True
        elif not any(beginning.startswith(shown) for beginning in (*_FIELDS, _MARK)):
            raise ProviderError(no_completion(shown))

    def _stream(self, sse: SseDecoder, piece: bytes, out: list[Chunk]) -> None:
        for event in sse.feed(piece):
            self._event(event, out)

    def _event(self, event: ServerSentEvent, out: list[Chunk]) -> None:
        raw = event.data.strip()
        if not raw or raw == b"[DONE]":  # which only intermediaries send
            return
        try:
            said = _parsed(raw)
        except ValueError:
            raise ProviderError(malformed("an event is no JSON", raw)) from None
        if type(said) is not dict:
            raise ProviderError(malformed("an event is no JSON object", raw))
        self._events.read(said, out)

    def _whole(self, raw: bytes, out: list[Chunk]) -> None:
        """Take one JSON object for the whole answer: a server that does not stream, or an error."""
        try:
            said = _parsed(raw.removeprefix(_MARK).strip(_SPACE))
        except ValueError:
            said = None
        if type(said) is not dict or not said.keys() & {"candidates", "promptFeedback", "error"}:
            raise ProviderError(no_completion(raw))
        self._events.read(said, out)
        self.is_answer = True


def _is_whole(event: ServerSentEvent) -> bool:
    """Whether the last event, which lacks its end, is whole; else the answer was cut there."""
    try:
        _parsed(event.data.strip())
    except ValueError:
        return False
    return True


def _parsed(raw: bytes) -> Any:
    """The value of a JSON text. Raises ValueError."""
    # The fast parser would round a long integer among the arguments of a call.
    return json_text.read(raw) if b"functionCall" in raw else orjson.loads(raw)
