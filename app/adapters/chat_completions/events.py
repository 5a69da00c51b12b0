"""Read the JSON objects of a chat completions answer, one by one.

Written for what servers send, not for what the wire's description says; each deviation that is taken care of
has a test of its own.
"""

from __future__ import annotations

from typing import Any, Final

from app.adapters.chat_completions.inline_tags import Kind, TagSplitter, call_in
from app.adapters.chat_completions.kept_reasoning import KeptReasoning
from app.adapters.chat_completions.profile import Profile
from app.adapters.chat_completions.tool_calls import ToolCalls
from app.adapters.model_faults import error_object_fault, malformed
from app.adapters.surrogates import Halves
from app.core.chunks import (
    Chunk,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    UsageReport,
)
from app.core.faults import Fault, FaultKind, ProviderError

FINISH_REASONS: Final = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "refusal",
}
"""What servers call the reasons to stop, in lower case."""


class EventReader:
    """Turns the objects of one answer into chunks; choice 0 only."""

    def __init__(self, profile: Profile) -> None:
        kinds: list[Kind] = []
        if profile.inline_think_tags:
            kinds.append("think")
        if profile.inline_tool_call_tags:
            kinds.append("tool_call")
        self._tags = TagSplitter(tuple(kinds), profile.max_event_bytes) if kinds else None
        self._calls = ToolCalls()
        self._kept = None if profile.reasoning_back is None else KeptReasoning(profile.reasoning_back)
        self._spoken = False
        """Whether a delta has brought anything."""
        self._gave_up = False
        """Whether the reason to stop is an error, which an error object may explain."""
        self.halves: Halves | None = None
        """Set by the caller once an object was read that may hold half a character."""

    def read(self, event: dict[str, Any], out: list[Chunk]) -> None:
        """Append what `event` says to `out`. Raises `ProviderError` for an error that it reports."""
        choices = event.get("choices")
        if type(choices) is list:
            for choice in choices:
                if type(choice) is dict and not choice.get("index"):
                    self._choice(choice, out)
        usage = event.get("usage")
        if usage is None and "x_groq" in event:
            usage = _dict(event["x_groq"]).get("usage")
        if usage:
            _usage(usage, out)
        if error := event.get("error"):
            raise ProviderError(error_object_fault(error))
        if event.get("object") == "error":
            raise ProviderError(error_object_fault(event))
        if self._gave_up:
            raise ProviderError(Fault(FaultKind.IN_STREAM, "the model server ended its answer with an error"))

    def finish(self, out: list[Chunk]) -> None:
        """Append what was held back."""
        if self._tags is not None:
            self._take(self._tags.finish(), out)

    def _choice(self, choice: dict[str, Any], out: list[Chunk]) -> None:
        delta = choice.get("delta")
        if delta is None and not self._spoken:
            # A server that sends the whole message as one event. Beside deltas it would be a repetition.
            delta = choice.get("message")
        if type(delta) is dict:
            self._delta(delta, out)
        finish = choice.get("finish_reason")
        if finish:
            word = str(finish)
            self._gave_up = word == "error"
            self.finish(out)
            if self._kept is not None and (opaque := self._kept.gathered()) is not None:
                out.append(opaque)
            out.append(FinishReason(FINISH_REASONS.get(word.lower()), word))

    def _delta(self, delta: dict[str, Any], out: list[Chunk]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if not reasoning and "reasoning_details" in delta:
            reasoning = _details_text(delta["reasoning_details"])
        if self._kept is not None:
            self._kept.details(delta.get("reasoning_details"))
        if reasoning:
            self._reasoning(reasoning, out)
        content = delta.get("content")
        if content:
            self._spoken = True
            if type(content) is str:
                self._text(content, out)
            elif type(content) is list:
                for part in content:
                    self._part(_dict(part), out)
        refusal = delta.get("refusal")
        if refusal and type(refusal) is str:
            out.append(RefusalDelta(self._whole("refusal", refusal)))
        if calls := delta.get("tool_calls"):
            self._tool_calls(calls, out)
        if function := delta.get("function_call"):
            self._tool_calls([{"index": 0, "function": function}], out)

    def _text(self, text: str, out: list[Chunk]) -> None:
        text = self._whole("text", text)
        if self._tags is None:
            out.append(TextDelta(text))
        else:
            self._take(self._tags.feed(text), out)

    def _reasoning(self, reasoning: Any, out: list[Chunk]) -> None:
        if type(reasoning) is str:
            self._spoken = True
            reasoning = self._whole("reasoning", reasoning)
            if self._kept is not None:
                self._kept.text(reasoning)
            out.append(ReasoningDelta(reasoning))

    def _part(self, part: dict[str, Any], out: list[Chunk]) -> None:
        """One typed part of a content that is a list."""
        match part.get("type"):
            case "text" | "output_text":
                if type(text := part.get("text")) is str:
                    self._text(text, out)
            case "thinking" | "reasoning":
                thinking = part.get("thinking") or part.get("text")
                self._reasoning(thinking if type(thinking) is str else _details_text(thinking), out)
            case "refusal":
                if type(refusal := part.get("refusal")) is str:
                    out.append(RefusalDelta(self._whole("refusal", refusal)))

    def _tool_calls(self, entries: Any, out: list[Chunk]) -> None:
        self._spoken = True
        for call in self._calls.deltas(entries):
            call.arguments = self._whole(call.index, call.arguments)
            out.append(call)

    def _take(self, passages: Any, out: list[Chunk]) -> None:
        try:
            for passage in passages:
                match passage.kind:
                    case "text":
                        out.append(TextDelta(passage.text))
                    case "think":
                        out.append(ReasoningDelta(passage.text))
                    case "tool_call":
                        out.append(self._calls.whole(*call_in(passage.text)))
        except ValueError as error:
            raise ProviderError(malformed(str(error), type="too_large")) from None

    def _whole(self, channel: object, text: str) -> str:
        return text if self.halves is None else self.halves.whole(channel, text)


def _usage(usage: Any, out: list[Chunk]) -> None:
    counts = _dict(usage)
    sent = _count(counts.get("prompt_tokens", counts.get("input_tokens")))
    made = _count(counts.get("completion_tokens", counts.get("output_tokens")))
    if sent is None and made is None:
        return
    sent, made = sent or 0, made or 0
    read = _dict(counts.get("prompt_tokens_details") or counts.get("input_tokens_details"))
    cached = _count(read.get("cached_tokens", counts.get("prompt_cache_hit_tokens")))
    written = _count(read.get("cache_write_tokens"))
    details = _dict(counts.get("completion_tokens_details") or counts.get("output_tokens_details"))
    reasoning = _count(details.get("reasoning_tokens"))
    if reasoning and counts.get("total_tokens") == sent + made + reasoning:
        made += reasoning  # a server that counts reasoning beside the answer, as its own total says
    out.append(UsageReport(sent, made, cached, written, reasoning))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _details_text(details: Any) -> str:
    """The text of a list of reasoning details or thinking parts."""
    if type(details) is not list:
        return ""
    texts = (_dict(detail).get("text") for detail in details)
    return "".join(text for text in texts if type(text) is str)


def _dict(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}
