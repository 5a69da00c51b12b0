"""Read the body of a ConverseStream answer, in whatever pieces it comes."""

from __future__ import annotations

from typing import Final

from app.adapters.bedrock_converse.events import EventReader
from app.adapters.bedrock_converse.frames import BadFrame, Frame, FrameDecoder, FrameTooLarge
from app.adapters.lenient_json import lenient_loads
from app.adapters.model_faults import malformed, no_completion
from app.core.chunks import Chunk, EndMark, KeepAlive
from app.core.faults import Fault, ProviderError

_CONTENT_TYPE: Final = "application/vnd.amazon.eventstream"


class AnswerReader:
    """Turns the bytes of one answer into chunks: a `model_exchange.Reader`."""

    def __init__(self, max_event_bytes: int, content_type: str) -> None:
        self._frames = FrameDecoder(max_event_bytes)
        self._events = EventReader()
        self.fault: Fault | None = None
        self.over = False
        self.complete = False
        self.is_answer = content_type.partition(";")[0].strip().lower() == _CONTENT_TYPE

    def feed(self, piece: bytes) -> list[Chunk]:
        """What the piece says; a `KeepAlive` when that is nothing."""
        out: list[Chunk] = []
        try:
            for frame in self._frames.feed(piece):
                self._take(frame, out)
        except BadFrame as error:
            whole = self.is_answer
            self._fail(malformed(str(error)) if whole else no_completion(piece))
        except FrameTooLarge as error:
            self._fail(malformed(str(error), type="too_large"))
        except ProviderError as error:
            self._fail(error.fault)
        return out or [KeepAlive()]

    def finish(self) -> list[Chunk]:
        """What is left when the body has ended: usage may be missing, the reason to stop may not."""
        out: list[Chunk] = []
        if not self.is_answer:
            self._fail(no_completion(b""))
        elif self._events.stopped and not self._frames.waiting:
            out.append(EndMark())
            self.complete = True
        self.over = True
        return out

    def _take(self, frame: Frame, out: list[Chunk]) -> None:
        self.is_answer = True
        try:
            said = lenient_loads(frame.payload) if frame.payload else {}
        except ValueError:
            raise ProviderError(malformed("an event is no JSON", frame.payload)) from None
        self._events.read(frame.headers, said if type(said) is dict else {}, out)

    def _fail(self, fault: Fault) -> None:
        self.fault, self.over = fault, True
