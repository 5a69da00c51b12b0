"""Read the body of an answer, in whatever pieces it comes."""

from __future__ import annotations

from typing import Any

import orjson

from app.adapters.gemini_content.events import EventReader
from app.adapters.model_body import FIELDS, MARK, SPACE, BodyReader, shown
from app.adapters.model_faults import malformed, no_completion
from app.adapters.sse import EventTooLarge, ServerSentEvent
from app.core import json_text
from app.core.chunks import Chunk, EndMark
from app.core.faults import ProviderError


class AnswerReader(BodyReader):
    """Turns the bytes of one answer into chunks."""

    def __init__(self, max_event_bytes: int, content_type: str = "text/event-stream") -> None:
        super().__init__(max_event_bytes, content_type)
        self._events = EventReader()
        self._start = bytearray()
        """What came as long as it is not known to be an event stream."""
        self._is_object = False
        """Whether the body is one JSON object, as far as its beginning tells."""

    def _ended(self, out: list[Chunk]) -> None:
        """The `EndMark` comes only here, and only when a reason to stop had come."""
        if self._sse is not None:
            if (event := self._sse.finish()) is not None and _is_whole(event):
                self._event(event, out)
        elif self._start.strip(SPACE) or not self._said_stream:
            self._whole(bytes(self._start), out)
        if self._events.finished:
            out.append(EndMark())
            self.complete = True

    def _begin(self, piece: bytes, out: list[Chunk]) -> None:
        """Find out what the body is."""
        self._start += piece
        if self._is_object:
            if len(self._start) > self._max:
                raise EventTooLarge(self._max)
            return
        start = bytes(self._start)
        beginning = shown(start)
        if beginning.startswith(FIELDS):
            self._stream(start, out)
        elif beginning.startswith(b"["):
            words = "the answer is a JSON array: the server pays no heed to alt=sse; check base_url"
            raise ProviderError(malformed(words, beginning, type="not_an_event_stream"))
        elif beginning.startswith(b"{"):
            self._is_object = True
        elif not any(field.startswith(beginning) for field in (*FIELDS, MARK)):
            raise ProviderError(no_completion(beginning))

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
            said = _parsed(raw.removeprefix(MARK).strip(SPACE))
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
