"""Read the events of a ConverseStream answer, one by one."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.adapters.lenient_json import lenient_dumps
from app.adapters.model_faults import error_object_fault
from app.core.chunks import (
    Chunk,
    FinishReason,
    OpaqueBlocks,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.json_text import storable
from app.core.opaque import MAX_BYTES, OpaqueBlock

FINISH_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
"""What the API calls the reasons to stop; its further words have no counterpart."""

STATUSES: Final = {
    "validationException": 400,
    "accessDeniedException": 403,
    "resourceNotFoundException": 404,
    "modelTimeoutException": 408,
    "modelNotReadyException": 429,
    "throttlingException": 429,
    "internalServerException": 500,
    # 424 as a status, and to be asked again.
    "modelStreamErrorException": 502,
    "serviceUnavailableException": 503,
}
"""The status that an exception inside an answer stands for."""

_READ: Final = "cacheReadInputTokens"
_WRITTEN: Final = "cacheWriteInputTokens"
_SENT: Final = ("inputTokens", _READ, _WRITTEN)
"""What was read, in three parts: the first leaves out what has to do with the cache."""


@dataclass(slots=True)
class _Thought:
    """A reasoning block whose pieces come."""

    at: int
    calls: int
    texts: list[str] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)


class EventReader:
    """Turns the events of one answer into chunks."""

    def __init__(self) -> None:
        self._indices: dict[int, int] = {}
        """Which call is written in which block."""
        self._thoughts: dict[int, _Thought] = {}
        self._length = 0
        self.stopped = False
        """Whether the reason to stop came."""
        self._kinds: dict[str, Callable[[dict[str, Any], list[Chunk]], None]] = {
            "contentBlockStart": self._block_start,
            "contentBlockDelta": self._block_delta,
            "messageStop": self._message_stop,
            "metadata": self._metadata,
        }

    def read(self, headers: Mapping[str, str], event: dict[str, Any], out: list[Chunk]) -> None:
        """Append what `event` says to `out`; one of a kind that is not known says nothing.

        Raises `ProviderError` for an exception that it reports.
        """
        match headers.get(":message-type"):
            case "exception":
                raise ProviderError(_exception(headers.get(":exception-type", ""), event))
            case "error":
                words = headers.get(":error-message") or "the model server reported an error"
                kind = headers.get(":error-code", "")
                raise ProviderError(Fault(FaultKind.IN_STREAM, words, type=kind, status=STATUSES.get(kind)))
        if (reads := self._kinds.get(headers.get(":event-type", ""))) is not None:
            reads(event, out)

    def _block_start(self, event: dict[str, Any], out: list[Chunk]) -> None:
        use = _dict(_dict(event.get("start")).get("toolUse"))
        if use:
            index = self._indices[_index(event)] = len(self._indices)
            out.append(ToolCallDelta(index, _str(use.get("toolUseId")), _str(use.get("name"))))

    def _block_delta(self, event: dict[str, Any], out: list[Chunk]) -> None:
        delta = _dict(event.get("delta"))
        if text := _str(delta.get("text")):
            self._length += len(text)
            out.append(TextDelta(text))
        elif reasoning := _dict(delta.get("reasoningContent")):
            self._reasoning(_index(event), reasoning, out)
        elif (call := self._indices.get(_index(event))) is not None:
            out.append(ToolCallDelta(call, arguments=_str(_dict(delta.get("toolUse")).get("input"))))

    def _reasoning(self, index: int, piece: dict[str, Any], out: list[Chunk]) -> None:
        thought = self._thoughts.get(index)
        if thought is None:
            thought = self._thoughts[index] = _Thought(self._length, len(self._indices))
        if text := _str(piece.get("text")):
            thought.texts.append(text)
            out.append(ReasoningDelta(text))
        if signature := _str(piece.get("signature")):
            thought.signatures.append(signature)
        if hidden := _str(piece.get("redactedContent")):
            thought.hidden.append(hidden)
            out.append(OpaqueBlocks())

    def _message_stop(self, event: dict[str, Any], out: list[Chunk]) -> None:
        blocks = [
            OpaqueBlock(text, thought.at, calls=thought.calls)
            for thought in self._thoughts.values()
            if (text := _json(thought))
        ]
        if blocks and sum(len(block.json) for block in blocks) <= MAX_BYTES:
            out.append(OpaqueBlocks(tuple(blocks)))
        if word := _str(event.get("stopReason")):
            self.stopped = True
            out.append(FinishReason(FINISH_REASONS.get(word), word))

    def _metadata(self, event: dict[str, Any], out: list[Chunk]) -> None:
        usage = _dict(event.get("usage"))
        known = {name: count for name, count in usage.items() if type(count) is int and count >= 0}
        if known.keys() & {*_SENT, "outputTokens"}:
            counts = known.get
            sent = sum(counts(name, 0) for name in _SENT)
            out.append(UsageReport(sent, counts("outputTokens", 0), counts(_READ), counts(_WRITTEN)))


def _json(thought: _Thought) -> str:
    """What is wanted back of a thought, "" where that is nothing: one that nobody signed."""
    content: dict[str, Any]
    if thought.signatures:
        text = "".join(thought.texts)
        content = {"reasoningText": {"text": text, "signature": "".join(thought.signatures)}}
    elif thought.hidden:
        try:
            whole = b"".join(base64.b64decode(piece, validate=True) for piece in thought.hidden)
        except binascii.Error:
            return ""
        content = {"redactedContent": base64.b64encode(whole).decode()}
    else:
        return ""
    return lenient_dumps({"reasoningContent": content})


def _exception(kind: str, event: dict[str, Any]) -> Fault:
    fault = error_object_fault({"type": kind, **event})
    return Fault(
        FaultKind.IN_STREAM,
        storable(fault.message),
        type=kind,
        status=STATUSES.get(kind),
        detail=fault.detail,
    )


def _index(event: dict[str, Any]) -> int:
    index = event.get("contentBlockIndex")
    return index if type(index) is int else -1


def _dict(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _str(value: Any) -> str:
    return value if type(value) is str else ""
