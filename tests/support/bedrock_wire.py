"""Write what Bedrock sends."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from tests.support.model_server import Attempt

REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
"""The wire's own words."""
CONTENT_TYPE = "application/vnd.amazon.eventstream"


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame, all of whose headers are strings."""
    packed = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    start = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    whole = start + struct.pack(">I", crc32(start)) + packed + payload
    return whole + struct.pack(">I", crc32(whole))


def event(kind: str, **members: Any) -> bytes:
    """One event."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps({**members, "p": "abcd"}).encode())


def exception(kind: str, message: str = "scripted") -> bytes:
    """An exception inside an answer."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps({"message": message}).encode())


def start(index: int, id: str, name: str) -> bytes:
    """A call begins."""
    use = {"toolUse": {"toolUseId": id, "name": name}}
    return event("contentBlockStart", contentBlockIndex=index, start=use)


def delta(index: int, **piece: Any) -> bytes:
    """A piece of a block."""
    return event("contentBlockDelta", contentBlockIndex=index, delta=piece)


def stop(index: int) -> bytes:
    """A block is complete."""
    return event("contentBlockStop", contentBlockIndex=index)


def end(reason: str, **usage: int) -> bytes:
    """The end of an answer, with its usage if there is any."""
    said = event("messageStop", stopReason=reason)
    return said + event("metadata", usage=usage, metrics={"latencyMs": 9}) if usage else said


def answer(*chunks: bytes | float, **more: Any) -> Attempt:
    """What a server does that sends these."""
    return Attempt(chunks, content_type=CONTENT_TYPE, **more)


def attempt(steps: Sequence[Mapping[str, Any]]) -> Attempt:
    """What a server must do to behave like a script of the scripted provider; the wire has no refusals."""
    chunks: list[bytes | float] = [event("messageStart", role="assistant")]
    wait_s = 0.0
    usage: dict[str, int] = {}
    for at, step in enumerate(steps):
        ((word, value),) = step.items()
        match word:
            case "open_wait_ms":
                wait_s = value / 1000
            case "wait_ms":
                chunks.append(value / 1000)
            case "text":
                chunks.append(delta(0, text=value))
            case "reasoning":
                chunks.append(delta(9, reasoningContent={"text": value}))
            case "tool_call":
                index = 1 + value["index"]
                if "name" in value:
                    chunks.append(start(index, value["id"], value["name"]))
                chunks.append(delta(index, toolUse={"input": value.get("arguments", "")}))
            case "usage":
                usage = {"inputTokens": value["input_tokens"], "outputTokens": value["output_tokens"]}
            case "end":
                chunks.append(end(REASONS[value], **usage))
                return answer(*chunks, framing="chunked", then="keep", open_wait_s=wait_s)
            case "error":
                first = all("open_wait_ms" in before for before in steps[:at])
                return _failing(value, chunks, first, wait_s)
            case _:
                raise ValueError(f"the wire has no {word}")
    return answer(*chunks, open_wait_s=wait_s)


def _failing(error: Mapping[str, Any], chunks: list[bytes | float], first: bool, wait_s: float) -> Attempt:
    if error["kind"] == "network":
        head = b"" if first else None
        return answer(*([] if first else chunks), head=head, then="reset", open_wait_s=wait_s)
    if error["kind"] == "malformed":
        return answer(*chunks, b"\0" * 16, open_wait_s=wait_s)
    if first:
        body = json.dumps({"message": "scripted"}).encode()
        return Attempt([body], error["status"], "application/json", framing="length", open_wait_s=wait_s)
    return answer(*chunks, exception("internalServerException"), open_wait_s=wait_s)
