"""Write what a Gemini server sends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.chat_wire import event
from tests.support.model_server import Attempt

REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


def said(*parts: Any, finish: str | None = None, **top: Any) -> bytes:
    """An event with one candidate."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return event({"candidates": [candidate], "modelVersion": "m", **top})


def text(*pieces: str, finish: str = "STOP") -> list[bytes]:
    """The events of a plain answer."""
    return [*(said({"text": piece}) for piece in pieces), said({"text": ""}, finish=finish)]


def attempt(steps: Sequence[Mapping[str, Any]]) -> Attempt:
    """What a server must do to behave like a script of the scripted provider.

    Calls are sent whole, at the place of the first fragment. The wire has no refusals, and no end without a
    reason.
    """
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
                chunks.append(said({"text": value}))
            case "reasoning":
                chunks.append(said({"text": value, "thought": True}))
            case "tool_call":
                if "name" in value:
                    chunks.append(said({"functionCall": _call(value, steps)}))
            case "usage":
                counts = {
                    "promptTokenCount": value["input_tokens"],
                    "candidatesTokenCount": value["output_tokens"],
                }
                chunks.append(event({"usageMetadata": counts}))
            case "end":
                chunks.append(said(finish=REASONS[value]))
                return Attempt(chunks, framing="chunked", then="keep", open_wait_s=open_wait_s)
            case "error":
                first = all("open_wait_ms" in before for before in steps[:at])
                return _failing(value, chunks, first, open_wait_s)
            case _:
                raise ValueError(f"the wire has no {word}")
    return Attempt(chunks, open_wait_s=open_wait_s)


def _call(begun: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fragments = [step["tool_call"] for step in steps if "tool_call" in step]
    arguments = "".join(one["arguments"] for one in fragments if one["index"] == begun["index"])
    return {"id": begun["id"], "name": begun["name"], "args": json.loads(arguments or "{}")}


def _failing(
    error: Mapping[str, Any], chunks: list[bytes | float], first: bool, open_wait_s: float
) -> Attempt:
    words = {"message": error.get("message", "scripted"), "code": error.get("status")}
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
