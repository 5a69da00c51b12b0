"""Put a prompt into the form that Bedrock's ConverseStream takes."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from app.adapters.bedrock_converse.profile import BESIDE, INFERENCE, Profile, unknown_options
from app.adapters.model_turns import turns, written
from app.core import json_text
from app.core.errors import FieldError, Invalid
from app.core.opaque import in_order
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema
from app.ports.provider import ModelEndpoint, Opening

CONTINUE: Final = (
    "The answer above is not finished. Take it up at its last character, even in the middle of a word, and "
    "write the rest of it only."
)
"""What a model is told that should go on from its own unfinished answer."""

_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]")
_ID_CHARS: Final = 64
_DATA_URL: Final = re.compile(
    r"data:image/(png|jpeg|jpg|gif|webp)((?:;[^;,]*)*),(.*)", re.DOTALL | re.IGNORECASE
)


def body_of(opening: Opening, profile: Profile) -> bytes:
    """The request's body. Raises `Invalid` for what the API cannot be asked.

    Text to continue from is a turn of the model's, after which it is told to go on. No schema is enforced on
    what is only the rest of a value.
    """
    prompt = opening.prompt
    said = _said(opening)
    body = _options(prompt.options, profile)
    if system := [m.text for m in prompt.messages if m.role == "system" and m.text.strip()]:
        body["system"] = [{"text": json_text.storable(text)} for text in system]
    if prompt.tools:
        body["toolConfig"] = {"tools": [_tool(tool) for tool in prompt.tools]}
    if prompt.response_schema is not None and not opening.continue_from:
        body["outputConfig"] = {"textFormat": _format(prompt)}
    if not _may_think(said, opening.endpoint):
        _ask_for_no_thoughts(body)
    # Put together as bytes: what was said in earlier turns is there already.
    messages = b",".join(turns(said, opening.endpoint, _rendered, _rendered_whole))
    rest = json_text.dumps(body)[1:]
    return b'{"messages":[%b]%b%b' % (messages, b"," if body else b"", rest)


def _options(options: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    if unknown := unknown_options(options):
        errors = [FieldError(json_text.pointer(name), "is no option of the API") for name in unknown]
        raise Invalid(f"Bedrock has no option {', '.join(unknown)}", errors=errors)
    asked = {**profile.extra_body, **options}
    body = {name: value for name, value in asked.items() if name in BESIDE}
    inference = {name: value for name, value in asked.items() if name in INFERENCE}
    if inference:
        body["inferenceConfig"] = {**body.get("inferenceConfig", {}), **inference}
    return body


def _said(opening: Opening) -> Sequence[PromptMessage]:
    said = [message for message in opening.prompt.messages if message.role != "system"]
    if not opening.continue_from.strip():
        return said
    go_on = PromptMessage("user", opening.continue_prompt or CONTINUE)
    return [*said, PromptMessage("assistant", opening.continue_from), go_on]


def _may_think(said: Sequence[PromptMessage], endpoint: ModelEndpoint) -> bool:
    """Whether thoughts may be asked for: not where results are told of without those before the calls."""
    of_tools = False
    for message in reversed(said):
        if message.role == "assistant":
            return not of_tools or bool(message.opaque_for(endpoint.provider, endpoint.model))
        of_tools |= message.role == "tool"
    return True


def _ask_for_no_thoughts(body: dict[str, Any]) -> None:
    fields = body.get("additionalModelRequestFields")
    if isinstance(fields, Mapping):
        kept = {k: v for k, v in fields.items() if k not in ("thinking", "reasoning_config")}
        body["additionalModelRequestFields"] = kept


def _rendered(message: PromptMessage) -> bytes:
    """A message's blocks, without the brackets around them."""
    return written(_blocks(message))


def _rendered_whole(message: PromptMessage) -> bytes:
    """The same, with the thoughts that are wanted back."""
    assert message.opaque is not None
    blocks = []
    for part in in_order(message.text, message.tool_calls, message.opaque.blocks):
        if part.block is not None:
            blocks.append(part.block.json.encode())
        elif part.call is not None:
            blocks.append(bytes(json_text.dumps(_use(part.call))))
        elif part.text.strip():
            blocks.append(bytes(json_text.dumps({"text": json_text.storable(part.text)})))
    return b",".join(blocks)


def _blocks(message: PromptMessage) -> Iterable[dict[str, Any]]:
    # Blank text is refused.
    text = json_text.storable(message.text) if message.text.strip() else ""
    if message.tool_call_id is not None:
        content = [{"text": text}] if text else []
        yield {"toolResult": {"toolUseId": _id(message.tool_call_id), "content": content}}
        return
    for url in message.images:
        yield _image(url)
    if text:
        yield {"text": text}
    for call in message.tool_calls:
        yield _use(call)


def _use(call: PromptToolCall) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": _id(call.id), "name": call.name, "input": dict(call.arguments)}}


def _id(id: str) -> str:
    """An id that the API takes; that of another wire may be longer, or hold other characters."""
    return _NOT_IN_IDS.sub("_", id)[-_ID_CHARS:] or "_"


def _image(url: str) -> dict[str, Any]:
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise Invalid("Bedrock takes images as data URLs of png, jpeg, gif or webp only")
    kind, parameters, data = found.groups()
    if not parameters.lower().endswith(";base64"):
        data = b64encode(unquote_to_bytes(data)).decode()
    kind = kind.lower().replace("jpg", "jpeg")
    return {"image": {"format": kind, "source": {"bytes": "".join(data.split())}}}


def _tool(tool: ToolSchema) -> dict[str, Any]:
    spec = {"name": tool.name, "inputSchema": {"json": dict(tool.parameters)}}
    return {"toolSpec": {**spec, "description": tool.description} if tool.description else spec}


def _format(prompt: Prompt) -> dict[str, Any]:
    """The API wants the schema as text."""
    schema = json.dumps(dict(prompt.response_schema or {}), separators=(",", ":"))
    return {
        "type": "json_schema",
        "structure": {"jsonSchema": {"name": prompt.schema_name, "schema": schema}},
    }
