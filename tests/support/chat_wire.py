"""Write what a chat completions server sends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.model_server import Attempt

DONE = b"data: [DONE]\n\n"


def event(value: Any, *, name: str | None = None) -> bytes:
    """One server-sent event with `value` as its JSON."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def delta(delta: Any, finish: Any = None, **top: Any) -> bytes:
    """An event with one choice."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [choice], **top})


def text(*pieces: str, finish: str = "stop") -> list[bytes]:
    """The events of a plain answer."""
    said = [delta({"content": piece}) for piece in pieces]
    return [delta({"role": "assistant", "content": ""}), *said, delta({}, finish), DONE]


def attempt(steps: Sequence[Mapping[str, Any]]) -> Attempt:
    """What a server must do to behave like a script of the scripted provider."""
    chunks: list[bytes | float] = []
    open_wait_s = 0.0
    for at, step in enumerate(steps):
        ((word, value),) = step.items()
        match word:
            case "open_wait_ms":
                open_wait_s = value / 1000
            case "wait_ms":
                chunks.append(value / 1000)
            case "text":
                chunks.append(delta({"content": value}))
            case "reasoning" | "refusal":
                chunks.append(delta({word: value}))
            case "tool_call":
                chunks.append(delta({"tool_calls": [_call(value)]}))
            case "usage":
                counts = {"prompt_tokens": value["input_tokens"], "completion_tokens": value["output_tokens"]}
                chunks.append(event({"choices": [], "usage": counts}))
            case "end":
                if value is not None:
                    chunks.append(delta({}, value))
                return Attempt([*chunks, DONE], framing="chunked", then="keep", open_wait_s=open_wait_s)
            case "error":
                first = all("open_wait_ms" in before for before in steps[:at])
                return _failing(value, chunks, first, open_wait_s)
    return Attempt(chunks, open_wait_s=open_wait_s)


def _call(fragment: Mapping[str, Any]) -> dict[str, Any]:
    function = {key: fragment[key] for key in ("name", "arguments") if key in fragment}
    return {"index": fragment["index"], "id": fragment.get("id"), "type": "function", "function": function}


def _failing(
    error: Mapping[str, Any], chunks: list[bytes | float], first: bool, open_wait_s: float
) -> Attempt:
    words = {"message": error.get("message", "scripted"), "type": error.get("type") or None}
    words["code"] = error.get("code", error.get("status"))
    if error["kind"] == "network" and first:
        return Attempt(head=b"", then="reset", open_wait_s=open_wait_s)
    if error["kind"] == "network":
        return Attempt(chunks, then="reset", open_wait_s=open_wait_s)
    if error["kind"] == "malformed":
        return Attempt([*chunks, b"data: <no json>\n\n"], open_wait_s=open_wait_s)
    if first:
        body = json.dumps({"error": words}).encode()
        return Attempt([body], error["status"], "application/json", framing="length", open_wait_s=open_wait_s)
    return Attempt([*chunks, event({"error": words})], open_wait_s=open_wait_s)
