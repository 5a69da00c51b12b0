"""Put one message into parts: text, images, tool calls and their results."""

from __future__ import annotations

import base64
import binascii
from mimetypes import guess_type
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

from app.core import json_text
from app.core.errors import Invalid
from app.core.opaque import filled, in_order
from app.core.prompt import PromptMessage, PromptToolCall

NO_SIGNATURE: Final = "skip_thought_signature_validator"
"""The API's own word in the place of a signature that is not known any more."""

_DEFAULT_TYPE: Final = "image/png"


def content_parts(message: PromptMessage) -> bytes:
    """The parts of a message as JSON, joined by commas; empty when it says nothing.

    Raises `Invalid` for a data URL that cannot be read.
    """
    return _rendered(message, signed=False)


def signed_parts(message: PromptMessage) -> bytes:
    """The same; tool calls bear a word for the signature that newer models ask for."""
    return _rendered(message, signed=True)


def whole_parts(message: PromptMessage) -> bytes:
    """An answer with the signatures and parts that came with it, which the API wants back as they were."""
    assert message.opaque is not None
    parts = []
    for part in in_order(message.text, message.tool_calls, message.opaque.blocks):
        own = part.block.json if part.block is not None else "{}"
        if part.call is not None:
            own = filled(own, _members(_call(part.call)))
        elif part.text:
            own = filled(own, _members({"text": json_text.storable(part.text)}))
        parts.append(own)
    return ",".join(parts).encode()


def result_part(name: str, text: str) -> bytes:
    """The result of a call of the tool `name`; the API wants an object."""
    try:
        value: Any = json_text.read(text)
    except json_text.NotJson:
        value = json_text.storable(text)
    response = value if isinstance(value, dict) else {"output": value}
    return json_text.dumps({"functionResponse": {"name": name, "response": response}})


def _rendered(message: PromptMessage, *, signed: bool) -> bytes:
    parts: list[dict[str, Any]] = [{"text": json_text.storable(message.text)}] if message.text else []
    parts += [_image(url) for url in message.images]
    for at, call in enumerate(message.tool_calls):
        part = _call(call)
        if signed and at == 0:  # only the first of parallel calls has one
            part["thoughtSignature"] = NO_SIGNATURE
        parts.append(part)
    # A copy to be kept: bytes as orjson gives them hold on to the whole buffer they were written in.
    return b",".join([memoryview(json_text.dumps(part)).tobytes() for part in parts])


def _call(call: PromptToolCall) -> dict[str, Any]:
    return {"functionCall": {"name": call.name, "args": dict(call.arguments)}}


def _members(of: dict[str, Any]) -> str:
    """The members of an object as JSON text, without the brackets around them."""
    return json_text.dumps(of).decode()[1:-1]


def _image(url: str) -> dict[str, Any]:
    if url[:5].lower() == "data:":
        return {"inlineData": _inline(url)}
    kind, _ = guess_type(urlsplit(url).path)
    return {"fileData": {"mimeType": kind, "fileUri": url} if kind else {"fileUri": url}}


def _inline(url: str) -> dict[str, str]:
    head, comma, data = url[5:].partition(",")
    if not comma:
        raise Invalid("an image's data URL has no data")
    kind, *parameters = head.split(";")
    if "base64" in (parameter.strip().lower() for parameter in parameters):
        try:
            raw = base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error:
            raise Invalid("an image's data URL is no base64") from None
    else:
        raw = unquote_to_bytes(data)
    return {"mimeType": kind.strip().lower() or _DEFAULT_TYPE, "data": base64.b64encode(raw).decode()}
