"""Put a prompt into the form that a Messages endpoint takes.

The wire wants the system's words apart, turns that alternate, the results of tools at the beginning of the
turn after the call, and no block without text in it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from app.adapters.anthropic_messages.profile import MessagesProfile
from app.adapters.lenient_json import lenient_loads
from app.adapters.model_turns import turns, written
from app.adapters.wire_options import key_of
from app.core import json_text
from app.core.errors import Invalid
from app.core.opaque import Opaque, Part, filled, in_order
from app.core.prompt import Prompt, PromptMessage, PromptToolCall
from app.ports.provider import ModelEndpoint, Opening

CONTINUE: Final = (
    "Your last message ends too early. Write what comes next and nothing else: begin exactly where it ends, "
    "even inside a word, and repeat none of it."
)
"""What a model is told that should go on from its own unfinished answer."""

_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]")
_DATA_URL: Final = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.DOTALL | re.IGNORECASE)


def headers_of(endpoint: ModelEndpoint, profile: MessagesProfile) -> dict[str, str]:
    """The request's headers, the credential included. Raises `Invalid` for a key that no header can hold."""
    key = key_of(endpoint)
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "anthropic-version": profile.version,
    }
    own = {name.lower() for name in profile.headers}
    if key and "authorization" not in own:
        headers["x-api-key"] = key
    kept = {name: value for name, value in headers.items() if name.lower() not in own}
    return kept | profile.headers


def body_of(opening: Opening, profile: MessagesProfile) -> bytes:
    """The request's body. Raises `Invalid` for what this wire cannot say.

    The endpoint's `extra_body` comes first, then the prompt's options, then what the wire demands. Text to
    continue from is a last assistant message, where the endpoint goes on from one by itself; else the model
    is told to. No schema is enforced on what is only the rest of a value. A paused turn is given back after
    the very request that it answered. Tools that the server runs itself stand in `extra_body` or the options.
    """
    prompt = opening.prompt
    body: dict[str, Any] = {"max_tokens": profile.max_tokens, **profile.extra_body, **prompt.options}
    for ours in ("messages", "system"):
        body.pop(ours, None)
    body["model"] = opening.endpoint.model
    body["stream"] = True
    system = "\n\n".join(text for m in prompt.messages if m.role == "system" and (text := _text(m.text)))
    if system:
        body["system"] = system
    if prompt.tools:
        ours_too = [_tool(tool.name, tool.description, tool.parameters) for tool in prompt.tools]
        body["tools"] = [*_servers_own(body.get("tools")), *ours_too]
    if prompt.response_schema is not None and not opening.continue_from:
        body["output_config"] = {**_output_config(body), "format": _format(prompt)}
    said = _said(opening, profile)
    if opening.paused is None and not _may_think(said, opening.endpoint, body.get("thinking")):
        body.pop("thinking", None)
    # Put together as bytes: what was said in earlier turns is there already.
    messages = b",".join(turns(said, opening.endpoint, _rendered, _rendered_whole))
    return b'%b,"messages":[%b]}' % (json_text.dumps(body)[:-1], messages)


def _said(opening: Opening, profile: MessagesProfile) -> Sequence[PromptMessage]:
    said = [message for message in opening.prompt.messages if message.role != "system"]
    if (paused := opening.paused) is not None:
        by = opening.endpoint
        opaque = Opaque(by.provider, by.model, paused.blocks)
        return [*said, PromptMessage("assistant", paused.text, opaque=opaque)]
    unfinished = opening.continue_from
    if not unfinished.strip():
        return said
    said.append(PromptMessage("assistant", unfinished))
    # The wire refuses a last assistant message that ends in white space.
    by_itself = profile.prefill and unfinished == unfinished.rstrip()
    if opening.continue_prompt is not None or not by_itself:
        said.append(PromptMessage("user", opening.continue_prompt or CONTINUE))
    return said


def _may_think(said: Sequence[PromptMessage], endpoint: ModelEndpoint, thinking: Any) -> bool:
    """Whether thinking may be asked for.

    A turn that goes on, from its own text or from the results of its tools, has to begin with the thoughts
    that it began with, signed. Where it does not, as after another model's turn, the wire does without them
    only if no thinking is asked for, or if the model itself decides on it.
    """
    of_tools = False
    for message in reversed(said):
        if message.role == "assistant":
            if message is said[-1] or not of_tools:
                return message is not said[-1]
            own_choice = isinstance(thinking, Mapping) and thinking.get("type") == "adaptive"
            return own_choice or _begins_with_thought(message, endpoint)
        of_tools |= message.role == "tool"
    return not of_tools


def _begins_with_thought(message: PromptMessage, endpoint: ModelEndpoint) -> bool:
    blocks = message.opaque_for(endpoint.provider, endpoint.model)
    if not blocks or blocks[0].at or blocks[0].calls:
        return False
    # A thought may hold what nothing of ours does: half a character, a NUL.
    return lenient_loads(blocks[0].json.encode()).get("type") in ("thinking", "redacted_thinking")


def _rendered(message: PromptMessage) -> bytes:
    """A message's blocks, without the brackets around them."""
    return written(_blocks(message))


def _rendered_whole(message: PromptMessage) -> bytes:
    """The same, with what its provider wants back."""
    assert message.opaque is not None
    parts = in_order(message.text, message.tool_calls, message.opaque.blocks)
    blocks = [block for part in parts if (block := _whole(part))]
    return ",".join(blocks).encode()


def _whole(part: Part[PromptToolCall]) -> str:
    """One block as JSON text; "" for one that may not be sent."""
    if part.call is not None:
        return json_text.dumps(_use(part.call)).decode()
    if part.block is not None and not part.block.span:
        return part.block.json
    if not (text := _text(part.text)):
        return ""
    member = json_text.dumps({"text": text}).decode()[1:-1]
    return filled(part.block.json if part.block else '{"type":"text"}', member)


def _blocks(message: PromptMessage) -> Iterable[dict[str, Any]]:
    text = _text(message.text)
    if message.tool_call_id is not None:
        result = {"type": "tool_result", "tool_use_id": _id(message.tool_call_id)}
        yield {**result, "content": text} if text else result
        return
    for url in message.images:
        yield {"type": "image", "source": _image(url)}
    if text:
        yield {"type": "text", "text": text}
    for call in message.tool_calls:
        yield _use(call)


def _use(call: PromptToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": dict(call.arguments)}


def _text(text: str) -> str:
    """What of a text can be sent; blank text is refused, so it is nothing."""
    return json_text.storable(text) if text.strip() else ""


def _id(id: str) -> str:
    """An id that the wire takes; that of another wire may hold other characters."""
    return _NOT_IN_IDS.sub("_", id) or "_"


def _image(url: str) -> dict[str, str]:
    found = _DATA_URL.fullmatch(url)
    if found is None:
        return {"type": "url", "url": url}
    media_type, parameters, data = found.groups()
    if not media_type:
        raise Invalid("an image's data URL does not say what kind of image it is")
    if not parameters.lower().endswith(";base64"):
        data = b64encode(unquote_to_bytes(data)).decode()
    return {"type": "base64", "media_type": media_type.lower(), "data": data}


def _tool(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    tool = {"name": name, "description": description, "input_schema": dict(parameters)}
    if not description:
        del tool["description"]
    return tool


def _servers_own(tools: Any) -> Sequence[Any]:
    return tools if isinstance(tools, list) else ()


def _output_config(body: Mapping[str, Any]) -> Mapping[str, Any]:
    config = body.get("output_config")
    return config if isinstance(config, Mapping) else {}


def _format(prompt: Prompt) -> dict[str, Any]:
    return {"type": "json_schema", "schema": dict(prompt.response_schema or {})}
