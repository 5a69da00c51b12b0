"""Write what a server of Anthropic's Messages sends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.model_server import Attempt

REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
"""The wire's own words."""


def event(kind: str, *, name: str | None = None, **members: Any) -> bytes:
    """One event; its name is its type unless `name` says otherwise."""
    return f"event: {name or kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def start(**usage: int) -> bytes:
    """The event that begins a message, with its usage if there is any."""
    message: dict[str, Any] = {"id": "msg", "type": "message", "role": "assistant", "content": []}
    return event("message_start", message=message | ({"usage": usage} if usage else {}))


def block(index: int, content: Mapping[str, Any]) -> bytes:
    """The event that begins a block."""
    return event("content_block_start", index=index, content_block=content)


def delta(index: int, kind: str, **members: Any) -> bytes:
    """A piece of a block."""
    return event("content_block_delta", index=index, delta={"type": kind, **members})


def stop(index: int) -> bytes:
    """The end of a block."""
    return event("content_block_stop", index=index)


def end(reason: str | None, usage: Mapping[str, int] | None = None, **more: Any) -> bytes:
    """The last two events of a message."""
    counts: dict[str, Any] = {} if usage is None else {"usage": usage}
    said = event("message_delta", delta={"stop_reason": reason, "stop_sequence": None, **more}, **counts)
    return said + event("message_stop")


def text(*pieces: str, finish: str = "end_turn") -> list[bytes]:
    """The events of a plain answer."""
    said = [delta(0, "text_delta", text=piece) for piece in pieces]
    return [start(), block(0, {"type": "text", "text": ""}), *said, stop(0), end(finish)]


def error(kind: str, message: str = "scripted") -> bytes:
    """An error inside an answer."""
    return event("error", error={"type": kind, "message": message})


def attempt(steps: Sequence[Mapping[str, Any]]) -> Attempt:
    """What a server must do to behave like a script of the scripted provider."""
    script = _Script()
    for at, step in enumerate(steps):
        ((word, value),) = step.items()
        if word == "open_wait_ms":
            script.open_wait_s = value / 1000
        elif word == "error":
            first = all("open_wait_ms" in before for before in steps[:at])
            return script.failing(value, first)
        elif word == "end":
            return script.ending(value)
        else:
            script.say(word, value)
    return Attempt(script.chunks, open_wait_s=script.open_wait_s)


@dataclass
class _Script:
    """The events of a script so far."""

    chunks: list[bytes | float] = field(default_factory=lambda: [start()])
    open_wait_s: float = 0.0
    refusal: str = ""
    """What is said of a refusal, which this wire does at the end."""
    blocks: dict[object, int] = field(default_factory=dict)
    """Where each text, thought and call has its block."""

    def say(self, word: str, value: Any) -> None:
        match word:
            case "wait_ms":
                self.chunks.append(value / 1000)
            case "text":
                index = self._block(word, {"type": "text", "text": ""})
                self.chunks.append(delta(index, "text_delta", text=value))
            case "reasoning":
                index = self._block(word, {"type": "thinking", "thinking": "", "signature": ""})
                self.chunks.append(delta(index, "thinking_delta", thinking=value))
            case "refusal":
                self.refusal += value
            case "tool_call":
                call = {"type": "tool_use", "id": value.get("id"), "name": value.get("name"), "input": {}}
                index = self._block(value["index"], call)
                self.chunks.append(delta(index, "input_json_delta", partial_json=value.get("arguments", "")))
            case "usage":
                self.chunks.append(event("message_delta", delta={}, usage=value))

    def _block(self, key: object, content: Mapping[str, Any]) -> int:
        if key not in self.blocks:
            self.blocks[key] = len(self.blocks)
            self.chunks.append(block(self.blocks[key], content))
        return self.blocks[key]

    def ending(self, reason: str | None) -> Attempt:
        refused: dict[str, Any] = {}
        if self.refusal:
            refused["stop_details"] = {"type": "refusal", "explanation": self.refusal}
        word = None if reason is None else REASONS.get(reason, reason)
        chunks = [*self.chunks, *map(stop, self.blocks.values()), end(word, **refused)]
        return Attempt(chunks, framing="chunked", then="keep", open_wait_s=self.open_wait_s)

    def failing(self, told: Mapping[str, Any], first: bool) -> Attempt:
        wait = self.open_wait_s
        if told["kind"] == "network":
            return Attempt(
                [] if first else self.chunks, head=b"" if first else None, then="reset", open_wait_s=wait
            )
        if told["kind"] == "malformed":
            return Attempt([*self.chunks, b"data: <no json>\n\n"], open_wait_s=wait)
        words = {"type": told.get("type") or "api_error", "message": told.get("message", "scripted")}
        if first:
            body = json.dumps({"type": "error", "error": words, "request_id": "req"}).encode()
            return Attempt([body], told["status"], "application/json", framing="length", open_wait_s=wait)
        return Attempt([*self.chunks, error(words["type"], words["message"])], open_wait_s=wait)
