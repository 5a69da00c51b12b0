"""Read the events of a Messages answer, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from app.adapters.anthropic_messages.opaque import OpaqueGatherer
from app.adapters.lenient_json import lenient_dumps
from app.adapters.model_faults import error_object_fault, malformed
from app.adapters.surrogates import Halves
from app.core.chunks import (
    Chunk,
    EndMark,
    FinishReason,
    OpaqueBlocks,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from app.core.faults import ProviderError

FINISH_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # The server's own loop of tools stopped at its limit, and goes on when it is asked to.
    "pause_turn": "paused",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}
"""What the wire calls the reasons to stop."""

STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error inside an answer would have had before it."""

_WRITTEN: Final = "cache_creation_input_tokens"
_READ: Final = "cache_read_input_tokens"
_INPUT_COUNTS: Final = ("input_tokens", _WRITTEN, _READ)
"""What was read, in three parts: the first leaves out what has to do with the server's cache."""


@dataclass(slots=True)
class _Call:
    """A tool call whose block is open."""

    index: int
    """Position among the calls of the answer."""
    whole: str
    """The arguments that came with the block's start; they count where no fragment follows."""


class EventReader:
    """Turns the events of one answer into chunks.

    The reason to stop is held back until the end: an answer without its `message_stop` is not complete.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Call] = {}
        self._opaque = OpaqueGatherer()
        self._raw = b""
        """The event that is being read, as it came."""
        self._calls = 0
        self._begun = False
        """Whether a block was opened."""
        self._counts: dict[str, int] = {}
        self._reason = ""
        self.ended = False
        """Whether the end mark came."""
        self.halves: Halves | None = None
        """Set by the caller once an object was read that may hold half a character."""
        self._kinds: dict[str, Callable[[dict[str, Any], list[Chunk]], None]] = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
        }

    def read(self, kind: str, event: dict[str, Any], out: list[Chunk], raw: bytes = b"") -> None:
        """Append what `event` says to `out`; one of a kind that is not known says nothing.

        `raw` is the event as it came. Raises `ProviderError` for an error that it reports, and for a message
        inside a message.
        """
        self._raw = raw
        if (reads := self._kinds.get(kind)) is not None:
            reads(event, out)

    def message(self, message: dict[str, Any], out: list[Chunk]) -> None:
        """Append what a whole message says that came as one object."""
        self._message_start({"message": message}, out)
        content = message.get("content")
        for index, block in enumerate(content if type(content) is list else ()):
            self._block_start({"index": index, "content_block": block}, out)
            self._block_stop({"index": index}, out)
        self._message_delta({"delta": message}, out)
        self._message_stop({}, out)

    def _message_start(self, event: dict[str, Any], out: list[Chunk]) -> None:
        if self._begun:
            # A relay that asked again: what came so far and what follows are no one answer.
            raise ProviderError(malformed("a second message begins inside the answer", type="spliced"))
        self._usage(_dict(event.get("message")).get("usage"), out)

    def _block_start(self, event: dict[str, Any], out: list[Chunk]) -> None:
        self._begun = True
        block = _dict(event.get("content_block"))
        index = _index(event)
        match block.get("type"):
            case "text":
                self._opaque.text(index, block)
                self._text(block.get("text"), out)
            case "thinking":
                self._opaque.begin(index, block, self._raw)
                self._reasoning(block.get("thinking"), out)
            case "tool_use":
                call = self._open[index] = _Call(self._calls, _json_of(block.get("input")))
                self._calls += 1
                self._opaque.calls += 1
                out.append(ToolCallDelta(call.index, _str(block.get("id")), _str(block.get("name"))))
            case str():
                self._opaque.begin(index, block, self._raw)
                out.append(OpaqueBlocks())

    def _block_delta(self, event: dict[str, Any], out: list[Chunk]) -> None:
        self._begun = True
        delta = _dict(event.get("delta"))
        match delta.get("type"):
            case "text_delta":
                self._text(delta.get("text"), out)
            case "thinking_delta":
                self._opaque.piece(_index(event), delta)
                self._reasoning(delta.get("thinking"), out)
            case "input_json_delta" if (call := self._open.get(_index(event))) is not None:
                if piece := _str(delta.get("partial_json")):
                    call.whole = ""
                    out.append(ToolCallDelta(call.index, arguments=self._joined(call.index, piece)))
            case str():
                self._opaque.piece(_index(event), delta)

    def _block_stop(self, event: dict[str, Any], out: list[Chunk]) -> None:
        self._opaque.end(_index(event))
        call = self._open.pop(_index(event), None)
        if call is not None and call.whole:
            out.append(ToolCallDelta(call.index, arguments=call.whole))

    def _message_delta(self, event: dict[str, Any], out: list[Chunk]) -> None:
        delta = _dict(event.get("delta"))
        self._reason = _str(delta.get("stop_reason")) or self._reason
        details = _dict(delta.get("stop_details"))
        if details.get("type") == "refusal" and (why := _str(details.get("explanation"))):
            out.append(RefusalDelta(self._joined("refusal", why)))
        self._usage(event.get("usage"), out)

    def _message_stop(self, event: dict[str, Any], out: list[Chunk]) -> None:
        for index in list(self._open):
            self._block_stop({"index": index}, out)
        if (opaque := self._opaque.gathered()) is not None:
            out.append(opaque)
        reason = FINISH_REASONS.get(self._reason)
        if reason == "paused" and opaque is None:
            reason = "length"  # the server wants back what is not there
        if self._reason:
            out.append(FinishReason(reason, self._reason))
        out.append(EndMark())
        self.ended = True

    def _error(self, event: dict[str, Any], out: list[Chunk]) -> None:
        fault = error_object_fault(event.get("error") or event)
        status = STATUSES.get(fault.type) if fault.status is None else fault.status
        raise ProviderError(replace(fault, status=status))

    def _text(self, text: Any, out: list[Chunk]) -> None:
        if type(text) is str and text:
            text = self._joined("text", text)
            self._opaque.length += len(text)
            out.append(TextDelta(text))

    def _reasoning(self, text: Any, out: list[Chunk]) -> None:
        if type(text) is str and text:
            out.append(ReasoningDelta(self._joined("reasoning", text)))

    def _usage(self, usage: Any, out: list[Chunk]) -> None:
        """Take counts, each of which is a total that replaces the one before."""
        said = {name: count for name, count in _dict(usage).items() if _is_count(count)}
        self._counts |= said
        if said.keys() & {*_INPUT_COUNTS, "output_tokens"}:
            thought: Any = _dict(_dict(usage).get("output_tokens_details")).get("thinking_tokens")
            if _is_count(thought):
                self._counts["thinking_tokens"] = thought
            counts = self._counts.get
            sent = sum(counts(name, 0) for name in _INPUT_COUNTS)
            made = counts("output_tokens", 0)
            out.append(UsageReport(sent, made, counts(_READ), counts(_WRITTEN), counts("thinking_tokens")))

    def _joined(self, channel: object, text: str) -> str:
        return text if self.halves is None else self.halves.whole(channel, text)


def _index(event: dict[str, Any]) -> int:
    """Which block an event is about; -1 where it does not say."""
    index = event.get("index")
    return index if type(index) is int else -1


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _dict(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _str(value: Any) -> str:
    return value if type(value) is str else ""


def _json_of(value: Any) -> str:
    """The JSON text of arguments; "" where there are none."""
    if not value:
        return ""
    if type(value) is str:
        return value
    return lenient_dumps(value)
