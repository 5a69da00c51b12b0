"""Read the body of a chat completions answer, in whatever pieces it comes."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from app.adapters.chat_completions.events import EventReader
from app.adapters.chat_completions.profile import Profile
from app.adapters.lenient_json import lenient_loads
from app.adapters.model_body import MARK, SPACE, BodyReader, shown
from app.adapters.model_faults import error_object_fault, malformed, no_completion
from app.adapters.sse import EventTooLarge, ServerSentEvent, SseDecoder
from app.adapters.surrogates import Halves
from app.core.chunks import Chunk, EndMark
from app.core.faults import ProviderError

_DONE: Final = b"[DONE]"
_SSE_START: Final = re.compile(rb"(?:data|event|id|retry)?:")
_MAYBE_SSE_START: Final = tuple(b"data: event: id: retry:".split())
_PINGS: Final = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_DIGITS: Final = b"0" * 19


class AnswerReader(BodyReader):
    """Turns the bytes of one answer into chunks."""

    def __init__(self, profile: Profile, content_type: str = "text/event-stream") -> None:
        super().__init__(profile.max_event_bytes, content_type)
        self._events = EventReader(profile)
        self._whole: list[bytes] | None = None
        """The pieces of a body that is one JSON object."""
        self._whole_bytes = 0
        self._start = b""
        """The first bytes, as long as they do not tell what the body is."""

    def _ended(self, out: list[Chunk]) -> None:
        if self._sse is not None:
            self._last_event(self._sse, out)
            self._events.finish(out)
        elif self._whole is not None:
            self._complete(b"".join(self._whole), out)
        elif not self._said_stream or not _may_be_stream(self._start.lstrip(SPACE)):
            raise ProviderError(no_completion(self._start))

    def _begin(self, piece: bytes, out: list[Chunk]) -> None:
        """Find out what the body is."""
        if self._whole is not None:
            self._keep(piece)
            return
        start = self._start + piece
        beginning = shown(start)
        if len(start) < 3:
            self._start = start
        elif not beginning:
            self._start = b""
        elif beginning.startswith(b"{") or (beginning.startswith(b"[") and not self._said_stream):
            self._whole = []
            self._keep(start)
        elif self._said_stream or _SSE_START.match(beginning):
            self._stream(start, out)
        elif _may_be_stream(beginning):
            self._start = start
        else:
            raise ProviderError(no_completion(beginning))

    def _keep(self, piece: bytes) -> None:
        assert self._whole is not None
        self._whole.append(piece)
        self._whole_bytes += len(piece)
        if self._whole_bytes > self._max:
            raise EventTooLarge(self._max)

    def _event(self, event: ServerSentEvent, out: list[Chunk]) -> None:
        raw = event.data
        if raw == _DONE:
            self._end(out)
            return
        try:
            said = self._parsed(raw)
        except ValueError:
            self._no_json(event, out)
            return
        if type(said) is not dict:
            if said:
                raise ProviderError(malformed("an event is no JSON object", raw))
        elif event.name == "error" and not said.get("error"):
            raise ProviderError(error_object_fault(said))
        else:
            self._events.read(said, out)

    def _no_json(self, event: ServerSentEvent, out: list[Chunk]) -> None:
        raw = event.data.strip()
        if raw == _DONE:
            self._end(out)
        elif event.name == "error":
            raise ProviderError(error_object_fault(raw.decode("utf-8", "replace")))
        elif b"\n" in raw:
            # A server that ends its events with one line feed: several of them look like one.
            for line in raw.split(b"\n"):
                if not self.over:
                    self._event(ServerSentEvent(line, event.name), out)
        elif raw and event.name not in _PINGS:
            raise ProviderError(malformed("an event is no JSON", raw))

    def _end(self, out: list[Chunk]) -> None:
        self._events.finish(out)
        out.append(EndMark())
        self.over = self.complete = True

    def _last_event(self, sse: SseDecoder, out: list[Chunk]) -> None:
        """The last event lacks its end: it counts if it is whole, else the answer was cut there."""
        event = sse.finish()
        if event is None:
            return
        if event.data.strip() != _DONE:
            try:
                self._parsed(event.data)
            except ValueError:
                if event.name != "error" and b"\n" not in event.data:
                    return
        self._event(event, out)

    def _complete(self, raw: bytes, out: list[Chunk]) -> None:
        """Take a whole completion for an answer."""
        raw = raw.removeprefix(MARK).strip(SPACE)
        try:
            said = self._parsed(raw)
        except ValueError:
            raise ProviderError(malformed("the answer is no JSON", raw)) from None
        if type(said) is list and said:
            said = said[0]
        if type(said) is not dict or not (said.get("choices") or said.get("error")):
            if type(said) is dict and said.get("object") == "error":
                raise ProviderError(error_object_fault(said))
            raise ProviderError(no_completion(raw))
        self._events.read(said, out)
        self.is_answer = True
        self._end(out)

    def _parsed(self, raw: bytes) -> Any:
        """The value of a JSON text. Raises ValueError."""
        if b"arguments" in raw and _MANY_DIGITS in raw.translate(_DIGITS_TO_ZERO):
            return lenient_loads(
                raw
            )  # the fast parser would round a long integer among the arguments of a call
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            value = lenient_loads(raw)
            if self._events.halves is None:
                self._events.halves = Halves()
            return value


def _may_be_stream(start: bytes) -> bool:
    """Whether an event stream can begin so, as far as `start` goes."""
    begins = any(field.startswith(start) for field in (*_MAYBE_SSE_START, MARK))
    return begins or _SSE_START.match(start) is not None
