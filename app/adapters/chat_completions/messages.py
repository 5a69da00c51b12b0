"""Put the messages of a prompt into the form that a chat completions endpoint takes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from app.adapters.chat_completions.profile import Profile
from app.core import json_text
from app.core.opaque import filled
from app.core.prompt import PromptMessage
from app.ports.provider import ModelEndpoint

_NINE: Final = re.compile(r"[A-Za-z0-9]{9}")
_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

Back = Literal["reasoning_details", "reasoning_content"]


class Manner(NamedTuple):
    """What makes one and the same message differ between endpoints."""

    system_role: str
    nine: bool
    back: Back | None
    """What of the reasoning is given back."""
    own: bool
    """Whether the message is the endpoint's own, with something to be given back."""


def written(messages: Sequence[PromptMessage], to: ModelEndpoint, profile: Profile) -> list[bytes]:
    """The messages as JSON, each made once for all requests that want it in the same manner."""
    back = profile.reasoning_back
    manner = Manner(profile.system_role, profile.call_ids == "nine", back, own=False)
    plain = _writer(manner)
    if back is None:
        return [message.rendered(plain) for message in messages]
    whole = _writer(manner._replace(own=True))
    return [
        message.rendered(whole if message.opaque_for(to.provider, to.model) else plain)
        for message in messages
    ]


@cache
def _writer(manner: Manner) -> Callable[[PromptMessage], bytes]:
    def write(message: PromptMessage) -> bytes:
        # A copy to be kept: bytes as orjson gives them hold on to the whole buffer they were written in.
        plain = memoryview(json_text.dumps(_message(message, manner))).tobytes()
        return _with_reasoning(plain, message, manner)

    return write


def _with_reasoning(plain: bytes, message: PromptMessage, manner: Manner) -> bytes:
    if manner.back == "reasoning_content" and not message.tool_calls:
        return plain
    member = ""
    if manner.own and message.opaque is not None:
        kept = (block.json for block in message.opaque.blocks)
        member = next((json[1:-1] for json in kept if json.startswith(f'{{"{manner.back}"')), "")
    if not member and manner.back == "reasoning_content":
        member = '"reasoning_content":""'  # which even a turn without any has to have
    return filled(plain.decode(), member).encode() if member else plain


def _message(message: PromptMessage, manner: Manner) -> dict[str, Any]:
    role = manner.system_role if message.role == "system" else message.role
    out: dict[str, Any] = {"role": role, "content": json_text.storable(message.text)}
    if message.images:
        parts: list[dict[str, Any]] = [{"type": "text", "text": out["content"]}] if message.text else []
        # Not every server knows the member, and auto is what its absence means.
        detail = {} if message.image_detail == "auto" else {"detail": message.image_detail}
        out["content"] = parts + [
            {"type": "image_url", "image_url": {"url": url, **detail}} for url in message.images
        ]
    if message.tool_call_id is not None:
        out["tool_call_id"] = _id(message.tool_call_id, manner)
    if message.tool_calls:
        out["content"] = out["content"] or None
        out["tool_calls"] = [
            {
                "id": _id(call.id, manner),
                "type": "function",
                "function": {"name": call.name, "arguments": json_text.dumps(dict(call.arguments)).decode()},
            }
            for call in message.tool_calls
        ]
    return out


def _id(id: str, manner: Manner) -> str:
    """The id, or one made of it that the endpoint takes; of one id it is always the same."""
    if not manner.nine or _NINE.fullmatch(id):
        return id
    number = int.from_bytes(hashlib.sha256(id.encode("utf-8", "replace")).digest()[:8])
    letters = []
    for _ in range(9):
        number, at = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[at])
    return "".join(letters)
