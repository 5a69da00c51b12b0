"""Read the objects of one answer: candidates, feedback, usage, errors."""

from __future__ import annotations

from typing import Any, Final

from app.adapters.gemini_content.faults import in_full
from app.adapters.gemini_content.opaque import SIGNATURE, OpaqueGatherer
from app.adapters.model_faults import error_object_fault, malformed
from app.core import json_text
from app.core.chunks import Chunk, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta, UsageReport
from app.core.faults import Fault, FaultKind, ProviderError

FINISH_REASONS: Final = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
}
"""What the API calls the reasons to stop; its further words have no counterpart."""

_MALFORMED_CALL: Final = "MALFORMED_FUNCTION_CALL"
_UNSPECIFIED: Final = ("FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED")
_SENT: Final = ("promptTokenCount", "toolUsePromptTokenCount")
_THOUGHT: Final = "thoughtsTokenCount"
_MADE: Final = ("candidatesTokenCount", _THOUGHT)
_CACHED: Final = "cachedContentTokenCount"
"""A part of `promptTokenCount`."""
_WORDS: Final = 2_000


class EventReader:
    """Turns the objects of one answer into chunks; the first candidate only."""

    def __init__(self) -> None:
        self._calls = 0
        self._opaque = OpaqueGatherer()
        self._counts: dict[str, int] = {}
        self.finished = False
        """Whether a reason to stop came: there is no other sign that an answer is whole."""

    def read(self, event: dict[str, Any], out: list[Chunk]) -> None:
        """Append what `event` says to `out`. Raises `ProviderError` for an error that it reports."""
        try:
            if error := event.get("error"):
                raise ProviderError(in_full(error_object_fault(error)))
            self._answer(event, out)
        finally:
            # After the text of the same event, which it counts.
            if usage := event.get("usageMetadata"):
                self._usage(usage, out)

    def _answer(self, event: dict[str, Any], out: list[Chunk]) -> None:
        candidates = event.get("candidates")
        if type(candidates) is list and candidates:
            for candidate in candidates:
                if type(candidate) is dict and not candidate.get("index"):
                    self._candidate(candidate, out)
        elif blocked := _word(_dict(event.get("promptFeedback")).get("blockReason")):
            self.finished = True
            out.append(FinishReason("content_filter", blocked))

    def _candidate(self, candidate: dict[str, Any], out: list[Chunk]) -> None:
        parts = _dict(candidate.get("content")).get("parts")
        if type(parts) is list:
            for part in parts:
                if type(part) is dict:
                    self._part(part, out)
        if not (word := _word(candidate.get("finishReason"))):
            return
        if word == _MALFORMED_CALL:
            raise ProviderError(_malformed_call(candidate.get("finishMessage")))
        reason = FINISH_REASONS.get(word)
        if reason == "stop" and self._calls:
            reason = "tool_calls"  # which has no word of its own here
        if not self.finished and (opaque := self._opaque.gathered()) is not None:
            out.append(opaque)
        self.finished = True
        out.append(FinishReason(reason, word))

    def _part(self, part: dict[str, Any], out: list[Chunk]) -> None:
        call = part.get("functionCall")
        if type(call) is dict:
            self._opaque.call(part)
            out.append(self._call(call))
            self._opaque.calls = self._calls
            return
        text = part.get("text")
        if type(text) is not str or part.get("thought") is True:
            self._opaque.other(part)
        if type(text) is not str:
            return
        if part.get("thought") is True:
            if text:
                out.append(ReasoningDelta(text))
            return
        if SIGNATURE in part:
            self._opaque.text(part, text)
        if text:
            self._opaque.length += len(text)
            out.append(TextDelta(text))

    def _call(self, call: dict[str, Any]) -> ToolCallDelta:
        """A call, which comes whole unless the request wanted otherwise; most come without an id."""
        if "partialArgs" in call or call.get("willContinue"):
            raise ProviderError(malformed("tool calls in fragments are not read; do not ask for them"))
        index, self._calls = self._calls, self._calls + 1
        id, name, arguments = call.get("id"), call.get("name"), call.get("args")
        return ToolCallDelta(
            index,
            id if type(id) is str and id else None,
            name if type(name) is str else None,
            json_text.dumps({} if arguments is None else arguments).decode(),
        )

    def _usage(self, usage: Any, out: list[Chunk]) -> None:
        """Counts are totals so far; an event may leave out some of them."""
        known = {name: count for name, count in _dict(usage).items() if type(count) is int and count >= 0}
        self._counts |= {name: known[name] for name in (*_SENT, *_MADE, _CACHED) if name in known}
        if self._counts:
            counts = self._counts.get
            sent, made = (sum(counts(name, 0) for name in names) for names in (_SENT, _MADE))
            out.append(UsageReport(sent, made, counts(_CACHED), reasoning_tokens=counts(_THOUGHT)))


def _malformed_call(words: Any) -> Fault:
    message = "the model made a tool call that cannot be read"
    if type(words) is str and words:
        message = json_text.storable(f"{message}: {words[:_WORDS]}")
    return Fault(FaultKind.IN_STREAM, message, type=_MALFORMED_CALL)


def _word(value: Any) -> str:
    return value if type(value) is str and value not in _UNSPECIFIED else ""


def _dict(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}
